"""The wire formats by the names that transcripts have on the command line."""

from __future__ import annotations

from turnledger.adapters.providers.anthropic.messages import AnthropicMessages
from turnledger.adapters.providers.gemini.contents import GeminiContents
from turnledger.adapters.providers.openai.chat import ChatCompletions
from turnledger.adapters.providers.openai.responses import Responses
from turnledger.adapters.providers.wire import WireFormat

FORMATS: dict[str, type[WireFormat]] = {
    wire.name: wire for wire in (ChatCompletions, Responses, AnthropicMessages, GeminiContents)
}
