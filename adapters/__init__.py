"""The edges: providers, the command line, and formats of others.

The adapters of the providers are here by name, and are imported when they are asked for: the
command line needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapters.providers.anthropic import AnthropicAdapter
    from adapters.providers.gemini import GeminiAdapter
    from adapters.providers.litellm import LiteLLMAdapter
    from adapters.providers.media import UnsupportedMediaError
    from adapters.providers.openai import OpenAIAdapter

_HOMES = {
    "AnthropicAdapter": "adapters.providers.anthropic",
    "GeminiAdapter": "adapters.providers.gemini",
    "LiteLLMAdapter": "adapters.providers.litellm",
    "OpenAIAdapter": "adapters.providers.openai",
    "UnsupportedMediaError": "adapters.providers.media",
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
