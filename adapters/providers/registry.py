"""Registry of wire formats: the JSON that each provider takes and gives, by name.

A format's module is imported when the format is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from turnledger.adapters.providers.wire import WhenUnsupported, WireFormat
from turnledger.ledger import TurnledgerError
from turnledger.runtime import Reply

_CLASSES = {
    "openai-chat": ("turnledger.adapters.providers.openai.chat", "ChatCompletions"),
    "openai-responses": ("turnledger.adapters.providers.openai.responses", "Responses"),
    "anthropic": ("turnledger.adapters.providers.anthropic.messages", "AnthropicMessages"),
    "gemini": ("turnledger.adapters.providers.gemini.contents", "GeminiContents"),
}
FORMATS = tuple(_CLASSES)


def wire_of(
    name: str, *, unsupported_media: WhenUnsupported = "error", model: str = ""
) -> WireFormat:
    """The wire format of a name; `model` is for formats that differ from model to model."""
    module, kind = _CLASSES[name]
    made: Any = getattr(import_module(module), kind)
    more = {"model": model} if name == "gemini" else {}
    return cast(WireFormat, made(unsupported_media=unsupported_media, **more))


def reply_of(name: str, answer: dict[str, Any]) -> tuple[Reply, Any] | None:
    """A provider's answer decoded, with the data that the provider wants sent back.

    None if it wants nothing back, or the answer can't be decoded.
    """
    try:
        reply = wire_of(name).decode(answer)
    except (TurnledgerError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    kept = reply.provider_data
    if not isinstance(kept, dict) or kept.get(name) is None:
        return None
    return reply, kept[name]
