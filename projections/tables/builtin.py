"""The tables that come with the package: what tools did, and what models used day by day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnledger.ledger import (
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.projections.tables.table import Table, added

# What is under way in a run: when a tool was started, which model was called.
Open = dict[str, Any]
Parts = Iterable[tuple[str, dict[str, int]]]


class ToolStatistics(Table[Open]):
    """How often each tool was started, how that ended, and how long it took in microseconds.

    `timed` calls have a start and an end in one run; a fork's end of what its parent started
    has none. A call that was never started, its arguments being wrong, can fail too.
    """

    name = "tool-statistics"
    reads = (ToolCallStarted, ToolCallCompleted, ToolCallFailed, ToolCallInDoubt)

    def step(self, carry: Open | None, record: Record) -> tuple[Open | None, Parts]:
        event = record.event
        assert isinstance(
            event, ToolCallStarted | ToolCallCompleted | ToolCallFailed | ToolCallInDoubt
        )
        under_way = dict(carry or {})
        call, moment = f"{event.evaluation_id}\n{event.call_id}", record.commit
        if isinstance(event, ToolCallStarted):
            under_way[call] = moment
            return under_way, [(event.name, _tool(started=1))]
        began = under_way.pop(call, None)
        if isinstance(event, ToolCallInDoubt):
            part = _tool(in_doubt=1)
        else:
            outcome = "completed" if isinstance(event, ToolCallCompleted) else "failed"
            part = _tool(**{outcome: 1})
            if began is not None:
                took = max(moment - began, 0)
                part.update(timed=1, total_micros=took, longest_micros=took)
        return under_way or None, [(event.name, part)]

    def merge(self, old: Any, new: Any) -> Any:
        both = added(old, new)
        both["longest_micros"] = max(old["longest_micros"], new["longest_micros"])
        return both


def _tool(**counts: int) -> dict[str, int]:
    return {
        "started": 0,
        "completed": 0,
        "failed": 0,
        "in_doubt": 0,
        "timed": 0,
        "total_micros": 0,
        "longest_micros": 0,
        **counts,
    }


class UsageByDay(Table[Open]):
    """What each model used on each day (UTC), under keys like "2026-01-31 model".

    A reply counts for the model that replied, a failure for the one that was called.
    """

    name = "usage-by-day"
    reads = (ModelCalled, ModelReplied, ModelCallFailed)

    def step(self, carry: Open | None, record: Record) -> tuple[Open | None, Parts]:
        event = record.event
        assert isinstance(event, ModelCalled | ModelReplied | ModelCallFailed)
        under_way = dict(carry or {})
        call = f"{event.evaluation_id}\n{event.turn}"
        if isinstance(event, ModelCalled):
            under_way[call] = event.model
            return under_way, ()
        model = under_way.pop(call, "")
        if isinstance(event, ModelCallFailed):
            part = _usage(failed_calls=1)
        else:
            model, usage = event.model, event.usage
            part = _usage(
                calls=1,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )
        day = record.recorded_at.date().isoformat()
        return under_way or None, [(f"{day} {model}", part)]


def _usage(**counts: int) -> dict[str, int]:
    return {
        "calls": 0,
        "failed_calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        **counts,
    }


BUILT_IN_TABLES: tuple[Table[Any], ...] = (ToolStatistics(), UsageByDay())
