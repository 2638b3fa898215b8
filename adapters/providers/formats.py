"""The wire formats by the names that transcripts have on the command line."""

from __future__ import annotations

from adapters.providers.anthropic_wire import AnthropicMessages
from adapters.providers.chat import ChatCompletions
from adapters.providers.gemini_contents import GeminiContents
from adapters.providers.responses import Responses
from adapters.providers.wire import WireFormat

FORMATS: dict[str, type[WireFormat]] = {
    wire.name: wire for wire in (ChatCompletions, Responses, AnthropicMessages, GeminiContents)
}
