"""Replies of models as they are recorded: the response, its usage, and the messages for views."""

from __future__ import annotations

from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.messages import ModelResponse

from turnledger.ledger import TokenUsage
from turnledger.runtime.steps import OpenStep, StepOutcome


def complete(step: OpenStep, payload: Any) -> StepOutcome:
    """Record a model's response as the outcome of its step.

    Args:
        step: The step.
        payload: The response, as JSON data.
    """
    response: ModelResponse = JSON_CODEC.load(ModelResponse, payload)
    return step.complete(
        payload,
        usage=_usage(response),
        finish_reason=response.finish_reason or "",
        model=response.model_name or "",
    )


def _usage(response: ModelResponse) -> TokenUsage:
    used = response.usage
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        reasoning_tokens=used.output_reasoning_tokens or used.details.get("reasoning_tokens", 0),
    )
