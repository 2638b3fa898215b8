"""Events of a run that become events of its spans, and which of their fields leave the ledger.

Messages, slices and files do not: a span names what was done, and contents leave on demand only.
"""

from __future__ import annotations

from typing import Any, Final

from turnledger.adapters.telemetry.content import json_text
from turnledger.adapters.telemetry.open_span import Attribute
from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    CheckpointCleared,
    CheckpointReached,
    CheckpointStored,
    CustomEvent,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    ModelCallFailed,
    OutputRejected,
    RunAbandoned,
    RunClaimed,
    RunParked,
    RunResumed,
    RunWaiting,
    StateRestored,
    ToolCallDecided,
    ToolCallInDoubt,
    ToolMessageAmended,
)
from turnledger.ledger.arguments import INT64

# By type: the fields that are sent, and those that are contents.
NOTED: Final[dict[type[Event], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    ApprovalDecided: (("call_id", "decision", "attempt", "decided_by"), ("text", "arguments")),
    ApprovalRequested: (("call_id", "name", "needed"), ()),
    CheckpointCleared: (("reason",), ()),
    CheckpointReached: (("phase", "tool_calls_completed"), ()),
    CheckpointStored: (("phase", "tool_calls_completed"), ("checkpoint",)),
    CustomEvent: (("kind",), ("data",)),
    EvaluationFinished: (("evaluation_id",), ("output",)),
    EvaluationStarted: (("evaluation_id", "prompt_ns", "prompt_key", "adapter", "accepted"), ()),
    EvaluationSuperseded: (("evaluation_id", "reason"), ()),
    ModelCallFailed: (("error_type", "error_message", "status", "attempt"), ()),
    OutputRejected: (("evaluation_id",), ("error",)),
    RunAbandoned: (("reason",), ()),
    RunClaimed: (("worker", "epoch"), ()),
    RunParked: (("reason", "attempts"), ()),
    RunResumed: (("attempt", "from_version", "prompt", "prompt_by"), ()),
    RunWaiting: (("reason", "call_ids"), ()),
    StateRestored: (("reason",), ()),
    ToolCallDecided: (("call_id", "decision", "attempt", "decided_by"), ("text", "value")),
    ToolCallInDoubt: (("call_id", "name", "attempt", "reason"), ()),
    ToolMessageAmended: (("reason",), ("content",)),
}


def attributes_of(event: Event, version: int, *, content: bool) -> dict[str, Attribute]:
    """The attributes of the span event for an event; empty fields are left out.

    Args:
        event: An event of a type in NOTED.
        version: Its version.
        content: Whether contents are sent too.
    """
    names, contents = NOTED[type(event)]
    values = {name: getattr(event, name) for name in (*names, *(contents if content else ()))}
    sent: dict[str, Attribute] = {"turnledger.version": version}
    for name, value in values.items():
        if value not in ("", None, ()):
            sent[f"turnledger.{name}"] = _attribute(value)
    return sent


def _attribute(value: Any) -> Attribute:
    if isinstance(value, str | bool | float) or (isinstance(value, int) and value in INT64):
        return value
    if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
        return value
    return json_text(value)
