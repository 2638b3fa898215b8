"""Model requests and replies, independent of the provider.

A provider adapter encodes a `Request` as its payload and decodes the response to a `Reply`; both
are pure functions. A request is recorded by its digest only, because the ledger holds everything
that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from turnledger.ledger import BlobNotFoundError, TokenUsage
from turnledger.ledger.errors import InvalidInputError
from turnledger.projections import ChatTurn, MessageHistory
from turnledger.projections.digests import canonical, combine

# "auto", "none", "required", or a provider's own form for one tool.
ToolChoice: TypeAlias = str | Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A tool call that a model asks for; `arguments` is JSON text, as the model wrote it.

    A mapping is encoded as JSON, and None is an empty object. A provider whose calls have no
    ids leaves `call_id` empty, and the loop assigns one.
    """

    call_id: str
    name: str
    arguments: str = "{}"

    def __post_init__(self) -> None:
        given: Any = self.arguments
        if given is None:
            object.__setattr__(self, "arguments", "{}")
        elif isinstance(given, Mapping):
            try:
                object.__setattr__(self, "arguments", canonical(given).decode())
            except (RecursionError, UnicodeError, ValueError) as error:
                raise InvalidInputError(f"Invalid arguments of a tool call: {error}.") from error


_NO_USAGE = TokenUsage()


@dataclass(frozen=True)
class Reply:
    """A model's answer: text, tool calls, or both; `parsed` is what the provider decoded."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = _NO_USAGE
    finish_reason: str = ""
    model: str = ""
    parsed: Any = None
    # Sent back unchanged with the next request, as JSON: thinking blocks, for example.
    provider_data: Any = None
    # The provider's whole answer as data, for inspection; by default what `as_data` makes of it.
    # Not recorded.
    payload: dict[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.tool_calls) and self.parsed is None


def as_data(answer: Any, **options: Any) -> dict[str, Any] | None:
    """A provider's answer as data: a mapping, or what its `model_dump` gives; else None.

    Args:
        answer: What a provider's SDK returned.
        options: For pydantic's `model_dump`, besides those for JSON without None; a `model_dump`
            that takes no options is called without.
    """
    if isinstance(answer, Mapping):
        return dict(answer)
    dump = getattr(answer, "model_dump", None)
    if not callable(dump):
        return None
    try:
        dumped = dump(mode="json", exclude_none=True, warnings=False, **options)
    except TypeError:
        dumped = dump()
    return dict(dumped) if isinstance(dumped, Mapping) else None


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Transport options of a request, beside its payload.

    Attributes:
        timeout: Seconds until the deadline.
        on_text: Called with pieces of text as they arrive. An adapter that can't stream ignores
            it: the reply is complete either way.
    """

    timeout: float | None = None
    on_text: Callable[[str], None] | None = None


def _no_blob(name: str) -> bytes:
    raise BlobNotFoundError(name)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to a model."""

    evaluation_id: str
    # The number of the reply that this asks for, from 1.
    turn: int
    prompt_name: str
    system: str
    history: MessageHistory
    # The tools' specs. All requests of an evaluation share them.
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    response_format: dict[str, Any] | None = None
    # `Reply.provider_data` of earlier turns, by the turn's place in the history, from 1.
    provider_data: Mapping[int, Any] = field(default_factory=dict)
    prompt_digest: str = ""
    model: str = ""
    # Further options in the provider's own form: a temperature, for example.
    options: Mapping[str, Any] = field(default_factory=dict)
    # Returns the bytes of a blob by its name.
    blob: Callable[[str], bytes] = _no_blob
    # The encoder's cache from one request of an evaluation to the next, so that each costs
    # only what is new in it.
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def turns(self) -> tuple[ChatTurn, ...]:
        """The conversation in the form that the strictest provider accepts."""
        return self.history.for_send()

    @property
    def digest(self) -> str:
        """A digest of the request, the same in every process."""
        fields: list[Any] = [self.tools, self.tool_choice, self.response_format, self.model]
        if self.options:
            fields.append(self.options)
        prompt = self.prompt_digest.encode()
        return combine("request", prompt, canonical(fields), self.history.digest).hex()
