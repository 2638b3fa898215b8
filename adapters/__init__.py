"""The edges: providers, the command line, and formats of others.

The adapters of the providers are here by name, and are imported when they are asked for: the
command line needs none of them.
"""

from __future__ import annotations

if __name__ != "turnledger.adapters":  # a bare import would be a second copy of every class
    raise ImportError("Import turnledger.adapters, not the bare name adapters.")

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnledger.adapters.providers.anthropic.adapter import AnthropicAdapter
    from turnledger.adapters.providers.gemini.adapter import GeminiAdapter
    from turnledger.adapters.providers.litellm import LiteLLMAdapter
    from turnledger.adapters.providers.media import UnsupportedMediaError
    from turnledger.adapters.providers.openai.adapter import OpenAIAdapter

_HOMES = {
    "AnthropicAdapter": "turnledger.adapters.providers.anthropic.adapter",
    "GeminiAdapter": "turnledger.adapters.providers.gemini.adapter",
    "LiteLLMAdapter": "turnledger.adapters.providers.litellm",
    "OpenAIAdapter": "turnledger.adapters.providers.openai.adapter",
    "UnsupportedMediaError": "turnledger.adapters.providers.media",
}

__all__ = [
    "AnthropicAdapter",
    "GeminiAdapter",
    "LiteLLMAdapter",
    "OpenAIAdapter",
    "UnsupportedMediaError",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'adapters' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
