"""Replies of models as they are recorded: the response, its usage, and the messages for views."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from pydantic_ai.durable_exec import JSON_CODEC, ModelRequestId
from pydantic_ai.messages import ModelResponse

from turnledger.adapters.frameworks.pydantic_ai.operations import Asked, RunMemory
from turnledger.adapters.frameworks.pydantic_ai.turns import Turns
from turnledger.ledger import Event, TokenUsage
from turnledger.runtime.steps import OpenStep, StepOutcome


def complete(asked: Asked, step: OpenStep, payload: Any) -> StepOutcome:
    """Record a model's response as the outcome of its step.

    A wrapped client (`turnledger.wrap`) below the model leaves usage and messages to it.

    Args:
        asked: The operation.
        step: Its step.
        payload: The response, as JSON data.
    """
    response: ModelResponse = JSON_CODEC.load(ModelResponse, payload)
    said = Turns(asked.cache_key[1] if isinstance(asked.operation, ModelRequestId) else [])
    conversation = RunMemory.of(asked.scope).conversation(asked.scope)
    request = conversation.asked(step.spec.name, said.system, said.turns)
    spoken = Turns([response])
    events: tuple[Event, ...] = ()
    message_id: UUID | None = None
    for turn in spoken.turns:
        events, message_id = conversation.replied(request, turn)
    return step.complete(
        payload,
        events=(*request.events, *events),
        blobs=(*said.blobs, *spoken.blobs),
        usage=_usage(response),
        finish_reason=response.finish_reason or "",
        model=response.model_name or "",
        message_id=message_id,
        takes=partial(JSON_CODEC.load, ModelResponse),
    )


def _usage(response: ModelResponse) -> TokenUsage:
    used = response.usage
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        reasoning_tokens=used.output_reasoning_tokens or used.details.get("reasoning_tokens", 0),
    )
