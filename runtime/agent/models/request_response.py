"""What an evaluation gives back to its caller. Nothing here knows how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from turnledger.runtime.loop.events import ToolInvoked

OutputT = TypeVar("OutputT")


@dataclass(slots=True)
class PromptResponse(Generic[OutputT]):
    """A prompt's answer: `text`, or `output` if it was parsed.

    `tool_results` are the very events that were published. `provider_payload` is the
    provider's last answer as data, where it has such a form.
    """

    prompt_name: str
    text: str | None
    output: OutputT | None
    tool_results: tuple[ToolInvoked, ...]
    provider_payload: dict[str, Any] | None = None
