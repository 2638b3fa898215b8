"""Tables under test: runs to make them of, and what a plain fold of all records comes to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from multiprocessing import parent_process
from typing import Any
from uuid import UUID

from turnledger.ledger import (
    NEW,
    CustomEvent,
    Event,
    Ledger,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunStarted,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    new_run_id,
)
from turnledger.projections import Table, ToolStatistics, UsageByDay

SOME_ID = UUID("0195f5a0-0000-7000-8000-00000000abcd")


class Notes(Table[None]):
    """How many notes there are of each kind: nothing to remember."""

    name = "test.notes"
    reads = (CustomEvent,)

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        event = record.event
        assert isinstance(event, CustomEvent)
        yield event.kind, 1
        yield "all", {"count": 1}


class NotesV2(Notes):
    """The same table with another meaning."""

    version = 2

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        yield "notes", 1


class Deadly(Notes):
    """Takes its process with it, if that is a worker."""

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        if parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().adds(record)


class Faulty(Notes):
    """Raises, if that is in a worker."""

    def adds(self, record: Record) -> Iterable[tuple[str, Any]]:
        if parent_process() is not None:
            raise ZeroDivisionError("in a worker")
        return super().adds(record)


class Pairs(Table[int]):
    """Pairs of notes: every second one of a run ends what the first began."""

    name = "test.pairs"
    reads = (CustomEvent,)

    def step(
        self, carry: int | None, record: Record
    ) -> tuple[int | None, Iterable[tuple[str, Any]]]:
        if carry is None:
            return record.version, ()
        return None, [(f"apart by {record.version - carry}", 1)]


TABLES: tuple[Table[Any], ...] = (ToolStatistics(), UsageByDay(), Notes(), Pairs())


def clean_fold(ledger: Ledger, table: Table[Any], until: int | None = None) -> dict[str, Any]:
    """The rows that all records come to, one after the other, with nothing kept in between."""
    rows: dict[str, Any] = {}
    carries: dict[UUID, Any] = {}
    for record in ledger.tail():
        if until is not None and record.position > until:
            break
        if isinstance(record.event, table.reads):
            carries[record.run_id], parts = table.step(carries.get(record.run_id), record)
            for key, value in parts:
                rows[key] = table.merge(rows[key], value) if key in rows else value
    return dict(sorted(rows.items()))


# --- events ------------------------------------------------------------------------


def note(kind: str = "test.note") -> CustomEvent:
    return CustomEvent(kind=kind)


def starts(call: str, name: str = "search") -> ToolCallStarted:
    return ToolCallStarted(evaluation_id="e", call_id=call, name=name)


def completes(call: str, name: str = "search") -> ToolCallCompleted:
    return ToolCallCompleted(evaluation_id="e", call_id=call, name=name, message_id=SOME_ID)


def fails(call: str, name: str = "search") -> ToolCallFailed:
    return ToolCallFailed(
        evaluation_id="e",
        call_id=call,
        name=name,
        message_id=SOME_ID,
        error_type="ValueError",
        error_message="bad",
    )


def doubts(call: str, name: str = "search") -> ToolCallInDoubt:
    return ToolCallInDoubt(evaluation_id="e", call_id=call, name=name)


def calls(turn: int, model: str = "small") -> ModelCalled:
    return ModelCalled(evaluation_id="e", turn=turn, request_digest="r", model=model)


def replies(turn: int, model: str = "small", **usage: int) -> ModelReplied:
    return ModelReplied(
        evaluation_id="e", turn=turn, message_id=SOME_ID, model=model, usage=TokenUsage(**usage)
    )


def breaks(turn: int) -> ModelCallFailed:
    return ModelCallFailed(evaluation_id="e", turn=turn, error_type="Busy", error_message="503")


def story(number: int = 0) -> list[Event]:
    """A run that calls models and tools; one call is left open."""
    tool = ("search", "pay", "write")[number % 3]
    return [
        RunStarted(),
        calls(1),
        replies(1, input_tokens=10 + number, output_tokens=2),
        starts("a", tool),
        note(),
        completes("a", tool),
        calls(2, "large"),
        breaks(2),
        starts("b", tool),
        fails("b", tool),
        note("test.end"),
        starts("c", tool),
    ]


def fill(ledger: Ledger, runs: int = 4) -> list[UUID]:
    """So many stories, told side by side, and a fork and a continuation of the first."""
    ids = [new_run_id() for _ in range(runs)]
    for version in range(len(story())):
        for number, run in enumerate(ids):
            ledger.append(run, [story(number)[version]], version or NEW)
    for child in (ledger.fork(ids[0], 4), ledger.continuation(ids[0])):
        ledger.append(child, [completes("a"), note(), calls(3)], ledger.head(child))
    return ids
