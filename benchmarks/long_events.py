"""One run that goes on and on: evaluations with turns, tools, session state and facts of its own.

Every kind of event that makes some view grow is in it, in the proportions of an agent that works
through a queue. The events are made as they are asked for, so that a million of them fill nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Any
from uuid import UUID

import msgspec

from turnledger.ledger import (
    ANY,
    CheckpointReached,
    CustomEvent,
    EvaluationFinished,
    EvaluationStarted,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    RunStarted,
    SliceEventApplied,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRecord,
    ToolCallStarted,
)
from turnledger.projections import Declarations, append_all, inner_message_append, upsert_by

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SENTENCE = "The invoice for March was paid twice, so the second payment has to be returned. "
# Turns of an evaluation, and every how many evaluations one is restarted.
TURNS, SUPERSEDED = 16, 10
# What a program has in hand at once: its slice of these never gets longer.
IN_HAND = 20
# Events that are appended at once: about what a loop commits with a turn and its tools.
BATCH = 100


class Task(msgspec.Struct, frozen=True):
    """Something in hand; a later one of the same number takes its place."""

    number: int
    state: str


class Note(msgspec.Struct, frozen=True):
    """Something to remember: each stays."""

    text: str


def declarations() -> Declarations:
    """What the program that wrote the run says of its session: as a loop, it records messages."""
    known = Declarations()
    known.register(InnerMessage, InnerMessage, inner_message_append)
    known.register(Task, Task, upsert_by(lambda task: task.number))
    known.register(Note, Note, append_all)
    return known


def long_run(events: int) -> Iterator[Event]:
    """As many events of a run, from its beginning."""
    return islice(_run(), events)


def write(ledger: Ledger, run: UUID, events: int) -> None:
    """Append them, batch by batch."""
    coming = long_run(events)
    while batch := list(islice(coming, BATCH)):
        ledger.append(run, batch, ANY)


def _run() -> Iterator[Event]:
    yield RunStarted(request_type="Reconcile", tags={"kind": "long"})
    numbers = count(1)
    for evaluation in count():
        name = str(UUID(int=0x0194F0C28F6A7CC09D5E << 48 | evaluation))
        yield from _Evaluation(name, evaluation, numbers).events()


class _Evaluation:
    """One evaluation: its prompt, its turns, and how it ended."""

    def __init__(self, name: str, number: int, numbers: Iterator[int]) -> None:
        self._name = name
        self._number = number
        self._numbers = numbers  # of messages, over the whole run
        self._sequence = count()

    def events(self) -> Iterator[Event]:
        yield EvaluationStarted(
            evaluation_id=self._name,
            prompt_ns="billing",
            prompt_key="reconcile",
            prompt_digest=DIGEST,
            adapter="openai",
        )
        yield self._said("system", SENTENCE * 4)
        yield self._said("user", f"Evaluation {self._number}. {SENTENCE}")
        for turn in range(1, TURNS):
            yield from self._turn(turn)
        if self._number % SUPERSEDED == SUPERSEDED - 1:
            yield EvaluationSuperseded(evaluation_id=self._name, reason="more was disclosed")
            return
        yield from self._answer()

    def _turn(self, turn: int) -> Iterator[Event]:
        calls = tuple(
            ToolCallRecord(
                f"call_{self._number:06}_{turn:02}_{place}",
                "find_invoice" if place == 0 else "note",
                f'{{"month": "2026-03", "place": {place}}}',
            )
            for place in range(1 + turn % 2)
        )
        asked = self._said("assistant", SENTENCE * 3, tool_calls=calls, turn=turn)
        yield self._called(turn)
        yield asked
        yield self._replied(turn, asked, "tool_calls")
        for call in calls:
            yield ToolCallStarted(evaluation_id=self._name, call_id=call.call_id, name=call.name)
            yield from self._outcome(call, turn)
        yield self._slice(turn)
        if turn % 4 == 0:
            yield CustomEvent(kind="acme.progress", data={"evaluation": self._number, "turn": turn})
        if turn % 3 == 0:
            yield CheckpointReached(
                phase="post_tool",
                tool_calls_completed=turn,
                state_digest=DIGEST,
                created_at=START + timedelta(seconds=self._number),
            )

    def _outcome(self, call: ToolCallRecord, turn: int) -> Iterator[Event]:
        failed = (self._number + turn) % 17 == 0
        said = self._said(
            "tool",
            SENTENCE * 5,
            tool_call_id=call.call_id,
            tool_name=call.name,
            turn=turn,
            is_error=failed,
        )
        yield said
        if failed:
            yield ToolCallFailed(
                evaluation_id=self._name,
                call_id=call.call_id,
                name=call.name,
                message_id=said.message.message_id,
                error_type="TimeoutError",
                error_message="the archive did not answer",
            )
            return
        yield ToolCallCompleted(
            evaluation_id=self._name,
            call_id=call.call_id,
            name=call.name,
            message_id=said.message.message_id,
            value={"invoices": [{"id": 17, "sum": "120.00"}]},
        )

    def _slice(self, turn: int) -> Event:
        if turn % 8 == 0:
            return _applied(Note(f"{self._number}/{turn}: {SENTENCE}"), "append")
        return _applied(Task((self._number + turn) % IN_HAND, f"turn {turn}"), "apply")

    def _answer(self) -> Iterator[Event]:
        answer = self._said("assistant", SENTENCE * 2, turn=TURNS)
        yield self._called(TURNS)
        yield answer
        yield self._replied(TURNS, answer, "stop")
        yield EvaluationFinished(
            evaluation_id=self._name, message_id=answer.message.message_id, output={"paid": True}
        )

    def _called(self, turn: int) -> Event:
        return ModelCalled(
            evaluation_id=self._name, turn=turn, request_digest=DIGEST, adapter="openai", model="m"
        )

    def _replied(self, turn: int, said: MessageAppended, reason: str) -> Event:
        return ModelReplied(
            evaluation_id=self._name,
            turn=turn,
            message_id=said.message.message_id,
            usage=TokenUsage(input_tokens=4123, output_tokens=211, cached_tokens=3072),
            finish_reason=reason,
            model="m",
        )

    def _said(self, role: Any, content: str, **more: Any) -> MessageAppended:
        number = next(self._numbers)
        return MessageAppended(
            message=InnerMessage(
                role=role,
                content=content,
                evaluation_id=self._name,
                sequence=next(self._sequence),
                prompt_ns="billing",
                prompt_key="reconcile",
                created_at=START + timedelta(milliseconds=number),
                message_id=UUID(int=0x5A1C0C4E6F0E4C1E << 64 | number),
                **more,
            )
        )


def _applied(value: Task | Note, operation: Any) -> Event:
    name = type(value).__name__
    return SliceEventApplied(
        slice=name, event_type=name, operation=operation, payload=msgspec.to_builtins(value)
    )
