"""The events of steps: a start, that it is in doubt, and outcomes that nobody performed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnledger.ledger import (
    Event,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.runtime.loop.perform.tool_in_doubt import INTERRUPTED
from turnledger.runtime.steps.record.index import StepEntry
from turnledger.runtime.steps.spec import MOST_ARGUMENTS, StepSpec

# Recorded words.
WAITS = "nobody knows how these calls ended"


@dataclass(frozen=True)
class Reserved:
    """A step that has its id, and is not begun yet."""

    spec: StepSpec
    call_id: str
    parent: str
    arguments: str
    digest: str
    aside: bool
    call: str = ""


def started(reserved: Reserved, attempt: int) -> Event:
    """The start of a step, or of one more attempt of it."""
    spec = reserved.spec
    if spec.kind == "model":
        return ModelCalled(
            evaluation_id="",
            turn=0,
            call_id=reserved.call_id,
            parent=reserved.call or reserved.parent,
            name=spec.name,
            request_digest=reserved.digest,
            request=spec.request,
            model=spec.model,
            client=spec.client,
            attempt=attempt,
            on_interrupt=spec.on_interrupt,
            aside=reserved.aside,
        )
    text = reserved.arguments
    return ToolCallStarted(
        evaluation_id="",
        call_id=reserved.call_id,
        name=spec.name,
        parent=reserved.call or reserved.parent,
        digest=reserved.digest,
        arguments=text if len(text) <= MOST_ARGUMENTS else "",
        attempt=attempt,
        on_interrupt=spec.on_interrupt,
        aside=reserved.aside,
    )


def in_doubt(entry: StepEntry) -> ToolCallInDoubt:
    """Nobody knows how a step ended."""
    return ToolCallInDoubt(
        evaluation_id="",
        call_id=entry.call_id,
        name=entry.name,
        attempt=entry.attempts,
        reason=INTERRUPTED,
    )


def failed(entry: StepEntry, error_type: str, error_message: str) -> Event:
    """A step ended with an error that it did not raise: a person's decision, say."""
    if entry.kind == "model":
        return ModelCallFailed(
            evaluation_id="",
            turn=0,
            call_id=entry.call_id,
            error_type=error_type,
            error_message=error_message,
            attempt=entry.attempts,
            final=True,
        )
    return ToolCallFailed(
        evaluation_id="",
        call_id=entry.call_id,
        name=entry.name,
        error_type=error_type,
        error_message=error_message,
        attempt=entry.attempts,
    )


def completed(entry: StepEntry, value: Any) -> Event:
    """A step ended with a value that a person gave."""
    if entry.kind == "model":
        return ModelReplied(evaluation_id="", turn=0, call_id=entry.call_id, value=value)
    return ToolCallCompleted(
        evaluation_id="",
        call_id=entry.call_id,
        name=entry.name,
        value=value,
        attempt=entry.attempts,
    )
