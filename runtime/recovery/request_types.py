"""Which type of request a loop takes, and requests as the JSON that is recorded.

The type is the loop's own: its type arguments, else what `create_prompt` is annotated with,
else `request_type=`. A name that is found in a ledger is compared with it, never imported.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from turnledger.ledger import InvalidInputError
from turnledger.runtime.agent.schema.schema import decode
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.errors import (
    CheckpointCorruptedError,
    RequestTypeMismatchError,
    SchemaError,
)


def request_type_of(loop: Any, base: type, given: Any) -> Any:
    """The type of a loop's requests; None if nobody says."""
    if given is not None:
        return given
    for kind in type(loop).__mro__:
        for parent in getattr(kind, "__orig_bases__", ()):
            if get_origin(parent) is base:
                wanted = get_args(parent)[0]
                if not isinstance(wanted, TypeVar):
                    return wanted
    try:
        hints = get_type_hints(type(loop).create_prompt)
    except Exception:
        return None
    found = hints.get("request")
    return None if found is None or isinstance(found, TypeVar) or found is Any else found


def is_of(kind: Any, request: Any) -> bool:
    """Whether a request is of a type; also if that can't be said."""
    if not isinstance(kind, type):
        return True
    try:
        return isinstance(request, kind)
    except TypeError:  # a TypedDict, say
        return True


def type_name(kind: Any) -> str:
    """What a type is called in a ledger: its own name, no module."""
    return getattr(kind, "__name__", str(kind)) if kind is not None else ""


def recorded_request(kind: Any, request: Any) -> tuple[str, Any]:
    """The name of a request's type and its JSON."""
    declared = kind if kind is not None else type(request)
    try:
        return type_name(declared), to_plain(request)
    except SchemaError as error:
        raise InvalidInputError(f"The request can't be recorded: {error}") from error


def request_from(run_id: str, kind: Any, name: str, payload: Any) -> Any:
    """The request that was recorded; an error if it is of another type, or damaged."""
    if kind is None:
        return payload
    if name and name != type_name(kind):
        raise RequestTypeMismatchError(run_id, expected=type_name(kind), found=name)
    try:
        return decode(kind, payload)
    except SchemaError as error:
        raise CheckpointCorruptedError(
            f"The request of run {run_id} is no {type_name(kind)}: {error}", run_id=run_id
        ) from error
