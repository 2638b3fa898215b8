# The public names of `turnledger.adapters`, each with the module it comes from.
from turnledger.adapters.clients.wrap import UnsupportedClientError as UnsupportedClientError
from turnledger.adapters.clients.wrap import wrap as wrap
from turnledger.adapters.providers.anthropic.adapter import AnthropicAdapter as AnthropicAdapter
from turnledger.adapters.providers.gemini.adapter import GeminiAdapter as GeminiAdapter
from turnledger.adapters.providers.litellm import LiteLLMAdapter as LiteLLMAdapter
from turnledger.adapters.providers.media import UnsupportedMediaError as UnsupportedMediaError
from turnledger.adapters.providers.openai.adapter import OpenAIAdapter as OpenAIAdapter
