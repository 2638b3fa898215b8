"""What goes to a model and what comes back, in no provider's words.

A provider turns a `Request` into its payload and what it got into a `Reply`: both pure. What
a request is, is known by its digest alone; it is never stored, because the ledger holds
everything that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ledger import TokenUsage
from projections import ChatTurn, MessageHistory
from projections.running_hash import canonical, combine

# "auto", "none", "required", or what a provider spells it like for one tool.
ToolChoice: TypeAlias = str | Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A call that a model asks for; `arguments` is JSON text, as the model wrote it.

    A mapping becomes such text, and None an empty object's.
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
class Request:
    """One request to a model."""

    evaluation_id: str
    # The number of the reply that this asks for, from 1.
    turn: int
    prompt_name: str
    system: str
    history: MessageHistory
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: ToolChoice = "auto"
    response_format: dict[str, Any] | None = None
    # What providers sent beyond their messages, by the messages' turn.
    provider_data: Mapping[int, Any] = field(default_factory=dict)
    prompt_digest: str = ""
    model: str = ""

    @property
    def turns(self) -> tuple[ChatTurn, ...]:
        """The conversation as the strictest provider takes it."""
        return self.history.for_send()

    @property
    def digest(self) -> str:
        """Equal requests have equal digests, whichever process makes them."""
        options = canonical([self.tools, self.tool_choice, self.response_format, self.model])
        return combine("request", self.prompt_digest.encode(), options, self.history.digest).hex()
