"""A loop's request type, and encoding and decoding of requests in RunStarted.

The type is `request_type=` if given, else the loop's type argument, else the annotation of
`create_prompt`; a tuple of types takes any of them. A type name from a ledger is compared with
it, and never imported.
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
    """The type of a loop's requests; None if it is not declared.

    Args:
        loop: The loop.
        base: The generic class whose first type argument is the request type.
        given: The `request_type=` of the loop, or None.
    """
    if given is not None:
        return given
    argument = _first_argument(type(loop), base)
    if argument is not None and not isinstance(argument, TypeVar):
        return argument
    try:
        hints = get_type_hints(type(loop).create_prompt)
    except Exception:
        return None
    found = hints.get("request")
    return None if found is None or isinstance(found, TypeVar) or found is Any else found


def _first_argument(kind: type, base: type) -> Any:
    """The first type argument of `base` as a subclass gives it, also through generic classes."""
    for parent in getattr(kind, "__orig_bases__", kind.__bases__):
        origin = get_origin(parent) or parent
        if origin is base:
            return next(iter(get_args(parent)), None)
        if isinstance(origin, type) and issubclass(origin, base):
            found = _first_argument(origin, base)
            parameters = getattr(origin, "__parameters__", ())
            return dict(zip(parameters, get_args(parent), strict=False)).get(found, found)
    return None


def is_of(kind: Any, request: Any) -> bool:
    """Whether a request is of a type; true for types that `isinstance` can't check."""
    if isinstance(kind, tuple):
        return any(is_of(one, request) for one in kind)
    if not isinstance(kind, type):
        return True
    try:
        return isinstance(request, kind)
    except TypeError:  # a TypedDict, say
        return True


def type_name(kind: Any) -> str:
    """The name of a type as recorded: without its module."""
    if isinstance(kind, tuple):
        return " or ".join(map(type_name, kind))
    return getattr(kind, "__name__", str(kind)) if kind is not None else ""


def takes_type(kind: Any, name: str) -> bool:
    """Whether a loop takes requests that were recorded under this name of a type."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return kind is None or not name or name in map(type_name, kinds)


def recorded_request(kind: Any, request: Any) -> tuple[str, Any]:
    """A request as RunStarted holds it: the name of its type, and its JSON."""
    if isinstance(kind, tuple):
        kind = next((one for one in kind if is_of(one, request)), None)
    declared = kind if kind is not None else type(request)
    try:
        return type_name(declared), to_plain(request)
    except SchemaError as error:
        raise InvalidInputError(f"The request can't be recorded as JSON: {error}") from error


def request_from(run_id: str, kind: Any, name: str, payload: Any) -> Any:
    """Decode a recorded request.

    Args:
        run_id: The run, for errors.
        kind: The loop's request type, or a tuple of them; None gives the JSON as it is.
        name: The recorded name of the type.
        payload: The recorded JSON.

    Raises:
        RequestTypeMismatchError: It was recorded for a loop with another request type.
        CheckpointCorruptedError: It does not fit the type.
    """
    if kind is None:
        return payload
    if not takes_type(kind, name):
        raise RequestTypeMismatchError(run_id, expected=type_name(kind), found=name)
    if isinstance(kind, tuple):
        kind = next((one for one in kind if type_name(one) == name), kind[0])
    try:
        return decode(kind, payload)
    except SchemaError as error:
        raise CheckpointCorruptedError(
            f"Invalid request of run {run_id}, expected a {type_name(kind)}: {error}",
            run_id=run_id,
        ) from error
