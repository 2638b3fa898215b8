"""`StepSpec`: a step that code asks for, and how it is known: its id and the digest of arguments.

The id is a path, as people read it in `turnledger tools`: the step that it is in, its name, and
its key after ":", or its ordinal after "#": "checkout#1/pay:order-17".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, Protocol, TypeVar

from turnledger.ledger import InvalidInputError, Ledger, ToolCallStarted
from turnledger.ledger.errors import short_repr
from turnledger.projections.digests import canonical
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.errors import DataEncodeError

T = TypeVar("T")
# Longer arguments are recorded by their digest alone.
MOST_ARGUMENTS = 16 * 1024
_MOST_KEY = 200
_MOST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """A step that code asks for.

    Attributes:
        name: What it is: the name of a function, of a tool, of a request.
        key: What tells it from other steps of that name in the same place. None: its ordinal.
        arguments: What it is given, JSON-able: its digest is compared on resume and replay.
        kind: Whether it is recorded as a call of a tool or of a model.
        on_interrupt: What a resume does if nobody knows how it ended.
        raises: The error classes that are raised again as themselves.
        model: Of a model's call, the model.
        client: What makes the call: a package and its version.
        request: Of a model's call, what is kept of the request.
        again: Whether its caller tries again what failed before its eyes, in this process: one
            more attempt of the same step. On resume and replay the last one is the outcome.
        takes: Raises for a value that the caller can't take: one that a person gave.
    """

    name: str
    key: str | None = None
    arguments: Any = None
    kind: Literal["tool", "model"] = "tool"
    on_interrupt: OnInterrupt = "retry"
    raises: tuple[type[Exception], ...] = ()
    model: str = ""
    client: str = ""
    request: Any = None
    again: bool = False
    takes: Callable[[Any], object] | None = None


class StepCodec(Protocol[T]):
    """A step's value on its way to JSON and back. Live code gets it after both, too."""

    def encode(self, value: T) -> Any:
        """The value as JSON data; raises if it has no such form."""
        ...

    def decode(self, data: Any) -> T:
        """The value of recorded data."""
        ...


def step_id(parent: str, name: str, key: str | None, ordinal: int) -> str:
    """The id of a step.

    Args:
        parent: The id of the step, or tool call, that it is in; empty if it is in none.
        name: Its name.
        key: Its key, if it has one.
        ordinal: Its place among the steps of that name in that parent, from 1.
    """
    called = name.replace("%", "%25").replace("/", "%2F").replace(":", "%3A").replace("#", "%23")
    if key is None:
        own = f"{called}#{ordinal}"
    elif len(key) > _MOST_KEY:
        # "%" in a key is "%25": no key is written like this.
        own = f"{called}:%sha256-{sha256(key.encode()).hexdigest()}"
    else:
        own = f"{called}:{key.replace('%', '%25').replace('/', '%2F')}"
    return f"{parent}/{own}" if parent else own


def checked_name(spec: StepSpec, ledger: Ledger) -> str:
    """The step's name; InvalidInputError if its name or key can't be part of an id."""
    name, key = spec.name, spec.key
    if not isinstance(name, str) or not 1 <= len(name) <= _MOST_NAME or not name.isprintable():
        raise InvalidInputError(
            f"Invalid step name {short_repr(name)}: expected 1 to {_MOST_NAME} printable "
            "characters."
        )
    if key is not None and (not isinstance(key, str) or not key or not key.isprintable()):
        raise InvalidInputError(
            f"Invalid key {short_repr(key)} of step {name!r}: expected text of printable "
            "characters, and not empty."
        )
    if ledger.redact_text(f"{name} {key or ''}") != f"{name} {key or ''}":
        raise InvalidInputError(
            f"The name or key of step {ledger.redact_text(name)!r} holds a secret, and ids are "
            "stored as they are. Use another key: the id of a customer or an order, say."
        )
    return name


def arguments_text(spec: StepSpec, ledger: Ledger) -> str:
    """The arguments as canonical JSON, after redaction; InvalidInputError if they have no such."""
    try:
        text = canonical(to_plain(spec.arguments)).decode()
    except DataEncodeError as error:
        raise InvalidInputError(
            f"The arguments of step {spec.name!r} can't be recorded: {error}. Pass data; take "
            "clients, connections and the like from outside of the function."
        ) from error
    if ledger.redactor is None:
        return text
    event = ledger.redact(
        ToolCallStarted(evaluation_id="", call_id="", name=spec.name, arguments=text)
    )
    assert isinstance(event, ToolCallStarted)
    return event.arguments


def digest_of(text: str) -> str:
    """The digest of arguments, as it is recorded."""
    return sha256(text.encode()).hexdigest()
