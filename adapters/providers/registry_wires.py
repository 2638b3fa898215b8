"""The wire format that each kind of transcript is of: imported when it is needed, not before."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from turnledger.adapters.providers.wire import WhenUnsupported, WireFormat
from turnledger.ledger import TurnledgerError
from turnledger.runtime import Reply

_WIRES = {
    "openai-chat": ("turnledger.adapters.providers.openai.chat", "ChatCompletions"),
    "openai-responses": ("turnledger.adapters.providers.openai.responses", "Responses"),
    "anthropic": ("turnledger.adapters.providers.anthropic.messages", "AnthropicMessages"),
    "gemini": ("turnledger.adapters.providers.gemini.contents", "GeminiContents"),
}


def wire_of(
    name: str, *, unsupported_media: WhenUnsupported = "error", model: str = ""
) -> WireFormat:
    """The wire format of this name; `model` is for those that write for one model or another."""
    module, kind = _WIRES[name]
    made: Any = getattr(import_module(module), kind)
    more = {"model": model} if name == "gemini" else {}
    return cast(WireFormat, made(unsupported_media=unsupported_media, **more))


def reply_of(name: str, answer: dict[str, Any]) -> tuple[Reply, Any] | None:
    """An answer as a live run would record it, with what the provider wants back.

    None if the provider wants nothing back: then the answer's pieces say it all.
    """
    try:
        reply = wire_of(name).decode(answer)
    except (TurnledgerError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    kept = reply.provider_data
    if not isinstance(kept, dict) or kept.get(name) is None:
        return None
    return reply, kept[name]
