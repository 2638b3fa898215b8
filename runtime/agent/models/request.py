"""What goes to a model and what comes back, in no provider's words.

A provider turns a `Request` into its payload and what it got into a `Reply`: both pure. What
a request is, is known by its digest alone; it is never stored, because the ledger holds
everything that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from turnledger.ledger import BlobNotFoundError, TokenUsage
from turnledger.projections import ChatTurn, MessageHistory
from turnledger.projections.digests import canonical, combine

# "auto", "none", "required", or what a provider spells it like for one tool.
ToolChoice: TypeAlias = str | Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A call that a model asks for; `arguments` is JSON text, as the model wrote it.

    A mapping becomes such text, and None an empty object's. A provider whose calls have no
    ids leaves `call_id` empty, and the loop gives the call one.
    """

    call_id: str
    name: str
    arguments: str = "{}"

    def __post_init__(self) -> None:
        given: Any = self.arguments
        if given is None:
            object.__setattr__(self, "arguments", "{}")
        elif isinstance(given, Mapping):
            object.__setattr__(self, "arguments", canonical(given).decode())


_NO_USAGE = TokenUsage()


@dataclass(frozen=True)
class Reply:
    """A model's answer: text, calls, or both; `parsed` is what the provider itself parsed."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = _NO_USAGE
    finish_reason: str = ""
    model: str = ""
    parsed: Any = None
    # What has to go back unchanged with the next request (thinking blocks, say), as JSON.
    provider_data: Any = None
    # The whole answer as data, for those who want to look at it. Not recorded.
    payload: dict[str, Any] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.tool_calls) and self.parsed is None


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How a payload is to be sent: what is no part of it.

    `timeout` is in seconds, the time until the deadline. With `on_text` the text is wanted as
    it comes: whoever can't stream leaves it, and nothing is missing in the end.
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
    # What the model is told of its tools. All requests of an evaluation share it.
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    response_format: dict[str, Any] | None = None
    # What providers sent beyond their messages, by the place of the turn in the history, from 1.
    provider_data: Mapping[int, Any] = field(default_factory=dict)
    prompt_digest: str = ""
    model: str = ""
    # What the provider is told beside all this, in its own words: a temperature, say.
    options: Mapping[str, Any] = field(default_factory=dict)
    # The bytes that a blob's name means.
    blob: Callable[[str], bytes] = _no_blob
    # For the encoder: what it keeps from one request of an evaluation to the next, so that
    # each costs what is new in it.
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def turns(self) -> tuple[ChatTurn, ...]:
        """The conversation as the strictest provider takes it."""
        return self.history.for_send()

    @property
    def digest(self) -> str:
        """Equal requests have equal digests, whichever process makes them."""
        said: list[Any] = [self.tools, self.tool_choice, self.response_format, self.model]
        if self.options:
            said.append(self.options)
        prompt = self.prompt_digest.encode()
        return combine("request", prompt, canonical(said), self.history.digest).hex()
