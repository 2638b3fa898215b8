"""What an agent run writes, in sizes as they occur: the material of every measurement."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count as _count
from itertools import cycle, islice
from uuid import UUID

from turnledger.ledger import (
    CheckpointReached,
    Event,
    InnerMessage,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RunStarted,
    TokenUsage,
    ToolCallCompleted,
    ToolCallRecord,
    ToolCallStarted,
)

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
MESSAGE_ID = UUID("5a1c0c4e-6f0e-4c1e-9a57-3e6c1f1f2a10")
EVALUATION = "0194f0c2-8f6a-7cc0-9d5e-0123456789ab"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SENTENCE = "The invoice for March was paid twice, so the second payment has to be returned. "


def _message(role: str, content: str, sequence: int, **more: object) -> MessageAppended:
    return MessageAppended(
        message=InnerMessage(
            role=role,  # type: ignore[arg-type]
            content=content,
            evaluation_id=EVALUATION,
            sequence=sequence,
            turn=sequence // 2,
            prompt_ns="billing",
            prompt_key="reconcile",
            created_at=WHEN,
            message_id=UUID(int=MESSAGE_ID.int + sequence),
            **more,  # type: ignore[arg-type]
        )
    )


def one_turn(turn: int = 3) -> list[Event]:
    """The events of one model turn with one tool: a call, a reply, a tool, a checkpoint."""
    call = ToolCallRecord(
        f"call_0aB3dE{turn:05}", "find_invoice", '{"month": "2026-03", "limit": 20}'
    )
    asking, answering = 2 * turn, 2 * turn + 1
    return [
        ModelCalled(
            evaluation_id=EVALUATION, turn=turn, request_digest=DIGEST, adapter="openai", model="m"
        ),
        _message("assistant", SENTENCE * 6, asking, tool_calls=(call,)),
        ModelReplied(
            evaluation_id=EVALUATION,
            turn=turn,
            message_id=UUID(int=MESSAGE_ID.int + asking),
            usage=TokenUsage(input_tokens=4123, output_tokens=211, cached_tokens=3072),
            finish_reason="tool_calls",
            model="m",
        ),
        ToolCallStarted(evaluation_id=EVALUATION, call_id=call.call_id, name=call.name),
        _message("tool", SENTENCE * 16, answering, tool_call_id=call.call_id, tool_name=call.name),
        ToolCallCompleted(
            evaluation_id=EVALUATION,
            call_id=call.call_id,
            name=call.name,
            message_id=UUID(int=MESSAGE_ID.int + answering),
            value={"invoices": [{"id": 17, "sum": "120.00"}, {"id": 18, "sum": "120.00"}]},
        ),
        CheckpointReached(
            phase="post_tool", tool_calls_completed=turn, state_digest=DIGEST, created_at=WHEN
        ),
    ]


def events(count: int) -> Iterator[Event]:
    """As many events as asked for, turn after turn."""
    return islice(cycle(one_turn()), count)


def run_of(count: int) -> Iterator[Event]:
    """A run of as many events, from its beginning, each turn another: what is folded."""
    return islice(_run(), count)


def _run() -> Iterator[Event]:
    yield RunStarted(request_type="Reconcile")
    yield _message("system", SENTENCE * 4, 0)
    yield _message("user", SENTENCE, 1)
    for turn in _count(1):
        yield from one_turn(turn)


def conversation(count: int) -> Iterator[Event]:
    """As many messages, and nothing else: system, user, then assistant and tool in turn."""
    return islice((event for event in _run() if isinstance(event, MessageAppended)), count)
