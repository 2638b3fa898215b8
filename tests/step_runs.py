"""Runs made of durable steps: the events that a block or a workflow records, written by hand."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from uuid import UUID

from turnledger.ledger import (
    NEW,
    Event,
    Ledger,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    RunCompleted,
    RunStarted,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    run_id_for,
)

BLOCK, WORKFLOW = "turnledger.block", "turnledger.workflow"
CHAT = "openai.chat.completions"


def block(name: str = "order-17", **tags: str) -> RunStarted:
    """A block begins."""
    return RunStarted(request_type=BLOCK, tags={"name": name, **tags})


def workflow(agent: str = "orders/pay", request: Any = None) -> RunStarted:
    """A workflow begins."""
    return RunStarted(agent=agent, request_type=WORKFLOW, request=request)


def _name(call_id: str) -> str:
    own = call_id.rpartition("/")[2]
    return own.partition(":")[0].partition("#")[0]


def begins(call_id: str, given: Any = None, *, parent: str = "", **more: Any) -> ToolCallStarted:
    """A step begins."""
    text = json.dumps(given)
    return ToolCallStarted(
        **{
            "evaluation_id": "",
            "call_id": call_id,
            "name": _name(call_id),
            "parent": parent,
            "arguments": text,
            "digest": sha256(text.encode()).hexdigest(),
            "on_interrupt": "retry",
            **more,
        }
    )


def ends(call_id: str, value: Any = None, **more: Any) -> ToolCallCompleted:
    """A step is done, with this value."""
    return ToolCallCompleted(
        evaluation_id="", call_id=call_id, name=_name(call_id), value=value, **more
    )


def raises(call_id: str, text: str = "no money", kind: str = "Declined") -> ToolCallFailed:
    """A step raised an exception."""
    return ToolCallFailed(
        evaluation_id="",
        call_id=call_id,
        name=_name(call_id),
        error_type=kind,
        error_message=text,
        traceback=f'Traceback (most recent call last):\n  File "shop.py"\n{kind}: {text}',
    )


def doubts(call_id: str, attempt: int = 1) -> ToolCallInDoubt:
    """A step's outcome is unknown."""
    return ToolCallInDoubt(
        evaluation_id="", call_id=call_id, name=_name(call_id), attempt=attempt, reason="killed"
    )


def asks_model(call_id: str, request: Any = None, *, parent: str = "", **more: Any) -> ModelCalled:
    """A model call as a step begins."""
    return ModelCalled(
        **{
            "evaluation_id": "",
            "turn": 0,
            "call_id": call_id,
            "parent": parent,
            "name": _name(call_id),
            "request": request,
            "request_digest": sha256(json.dumps(request).encode()).hexdigest(),
            "model": "gpt-5-mini",
            "client": "openai 3.51",
            "on_interrupt": "retry",
            **more,
        }
    )


def answers(call_id: str, value: Any = None, **more: Any) -> ModelReplied:
    """The model's answer, which ends the step."""
    usage = TokenUsage(input_tokens=100, output_tokens=20)
    return ModelReplied(
        **{
            "evaluation_id": "",
            "turn": 0,
            "call_id": call_id,
            "value": value,
            "usage": usage,
            "model": "gpt-5-mini",
            **more,
        }
    )


def refuses(
    call_id: str, *, final: bool, status: int = 429, retryable: bool = True
) -> ModelCallFailed:
    """An attempt of a model call failed; the final one is its outcome."""
    return ModelCallFailed(
        evaluation_id="",
        turn=0,
        call_id=call_id,
        error_type="RateLimitError",
        error_message="slow down",
        retryable=retryable,
        status=status,
        final=final,
        value={"status": status},
    )


def order(euros: int = 120) -> list[Event]:
    """A block: a model call that is tried twice, a step with two inner ones, one that raised."""
    chat = f"{CHAT}:3f9a"
    return [
        block(),
        asks_model(chat, {"messages": ["Pay it."]}),
        refuses(chat, final=False),
        answers(chat, {"text": "Pay 120."}),
        begins("settle#1", {"order": 17}),
        begins("settle#1/check:17", {"order": 17}, parent="settle#1"),
        ends("settle#1/check:17", {"open": euros}),
        begins("settle#1/pay:17", {"euros": euros}, parent="settle#1", on_interrupt="ask"),
        ends("settle#1/pay:17", {"receipt": 4711}),
        ends("settle#1", {"paid": euros}),
        begins("mail#1", {"to": "ann@example.org"}),
        raises("mail#1", "no such mailbox", "SMTPError"),
        begins("report#1"),
        ends("report#1", unrecordable="a socket is not JSON"),
        RunCompleted(output={"paid": euros}),
    ]


def record_run(ledger: Ledger, events: list[Event], run_id: UUID | None = None) -> UUID:
    """Record a run, a commit for each event; a block under the id of its name."""
    started = events[0]
    if run_id is None and isinstance(started, RunStarted) and "name" in started.tags:
        run_id = run_id_for(started.tags["name"])
    run_id = run_id or UUID(ledger.clock.new_id())
    for version, event in enumerate(events):
        ledger.append(run_id, [event], version or NEW)
    return run_id
