"""Attribute names and values of the GenAI semantic conventions, and of our own in `turnledger.`.

The names are written out: in the package of the conventions they are marked as unstable, and
releases rename them. A test compares them with the installed package.
"""

from __future__ import annotations

import re
from typing import Final

from turnledger.ledger import ModelCalled, TokenUsage

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
WORKFLOW: Final = "gen_ai.workflow.name"
CONVERSATION: Final = "gen_ai.conversation.id"
PROMPT: Final = "gen_ai.prompt.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"
ERROR_TYPE: Final = "error.type"
STATUS_CODE: Final = "http.response.status_code"
# Contents, which leave only on demand.
INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

# By field of TokenUsage; one that is 0 is left out, but for the first two.
TOKENS: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
# Well-known values of `gen_ai.provider.name`, by the words that adapters, clients and the prefixes
# of model names have for them.
PROVIDERS: Final = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gen_ai",
    "google_genai": "gcp.gen_ai",
    "groq": "groq",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
# Operations of requests that are not chats, by their kind.
OPERATIONS: Final = {
    "anthropic.complete": "text_completion",
    "google.embed_content": "embeddings",
    "google.generate_content": "generate_content",
    "openai.audio": "audio",
    "openai.completions": "text_completion",
    "openai.embeddings": "embeddings",
    "openai.images": "images",
    "openai.moderations": "moderations",
}
# Of a call that names no provider.
UNKNOWN: Final = "_OTHER"
_WORD: Final = re.compile(r"[\w-]+")


def provider_of(call: ModelCalled) -> str:
    """The provider of a model call: a well-known name if there is one, else the adapter's.

    The prefix of a model ("bedrock/claude") says more than an adapter that serves many.
    """
    prefix, slash, _ = call.model.partition("/")
    for text in (prefix if slash else "", call.adapter, call.name, call.client):
        word = _WORD.match(text)
        if word is not None and word[0].lower() in PROVIDERS:
            return PROVIDERS[word[0].lower()]
    return call.adapter or call.name or UNKNOWN


def operation_of(call: ModelCalled) -> str:
    """The operation of a model call: a chat, unless its kind of request is another."""
    return OPERATIONS.get(call.name, "chat")


def tokens_of(usage: TokenUsage) -> dict[str, int | bool]:
    """The attributes of a reply's usage."""
    counts = {name: getattr(usage, field) for field, name in TOKENS.items()}
    always = (TOKENS["input_tokens"], TOKENS["output_tokens"])
    found: dict[str, int | bool] = {n: c for n, c in counts.items() if c or n in always}
    if usage.estimated:
        found["turnledger.usage.estimated"] = True
    return found
