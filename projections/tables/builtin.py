"""Built-in tables: statistics of tools, and token usage by day and model."""

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

# The calls of a run that are under way: when a tool was started, which model was called.
Open = dict[str, Any]
Parts = Iterable[tuple[str, dict[str, int]]]

NO_CALLS = dict.fromkeys(
    ("started", "completed", "failed", "in_doubt", "timed", "total_micros", "longest_micros"), 0
)
NO_USAGE = dict.fromkeys(
    (
        "calls",
        "failed_calls",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "estimated_calls",
    ),
    0,
)


class ToolStatistics(Table[Open]):
    """By tool: how many calls were started, how they ended, and their time in microseconds.

    `timed` calls have a start and an end in the same run. A call that a fork completes was
    started in its parent: it counts as started in the fork too, so that no more are completed
    than started. A call with invalid arguments fails without having been started.
    """

    name = "tool-statistics"
    version = 2
    reads = (ToolCallStarted, ToolCallCompleted, ToolCallFailed, ToolCallInDoubt)

    def step(self, carry: Open | None, record: Record) -> tuple[Open | None, Parts]:
        event = record.event
        assert isinstance(
            event, ToolCallStarted | ToolCallCompleted | ToolCallFailed | ToolCallInDoubt
        )
        under_way = dict(carry or {})
        call, moment = f"{event.evaluation_id}\n{event.call_id}\n{event.name}", record.commit
        if isinstance(event, ToolCallStarted):
            under_way[call] = moment
            return under_way, [(event.name, NO_CALLS | {"started": 1})]
        if isinstance(event, ToolCallInDoubt):
            if call in under_way:
                under_way[call] = None  # what it takes from here on is a person's time
            return under_way or None, [(event.name, NO_CALLS | {"in_doubt": 1})]
        is_started = call in under_way
        began = under_way.pop(call, None)
        outcome = "completed" if isinstance(event, ToolCallCompleted) else "failed"
        part = NO_CALLS | {outcome: 1}
        if outcome == "completed" and not is_started:
            part["started"] = 1
        if began is not None:
            took = max(moment - began, 0)
            part.update(timed=1, total_micros=took, longest_micros=took)
        return under_way or None, [(event.name, part)]

    def merge(self, old: Any, new: Any) -> Any:
        both = added(old, new)
        both["longest_micros"] = max(old["longest_micros"], new["longest_micros"])
        return both


class UsageByDay(Table[Open]):
    """Token usage by day (UTC) and model, "2026-01-31 model"; a failure is the called model's."""

    name = "usage-by-day"
    version = 2
    reads = (ModelCalled, ModelReplied, ModelCallFailed)

    def step(self, carry: Open | None, record: Record) -> tuple[Open | None, Parts]:
        event = record.event
        assert isinstance(event, ModelCalled | ModelReplied | ModelCallFailed)
        under_way = dict(carry or {})
        call = event.call_id or f"{event.evaluation_id}\n{event.turn}"
        if isinstance(event, ModelCalled):
            under_way[call] = event.model
            return under_way, ()
        model = under_way.get(call, "")
        if not isinstance(event, ModelCallFailed) or event.final or not event.call_id:
            under_way.pop(call, None)  # or a step, which tries again
        if isinstance(event, ModelCallFailed):
            part = NO_USAGE | {"failed_calls": 1}
        else:
            model, usage = event.model, event.usage
            part = {
                **NO_USAGE,
                "calls": 1,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "estimated_calls": int(usage.estimated),
            }
        day = record.recorded_at.date().isoformat()
        return under_way or None, [(f"{day} {model}", part)]


BUILT_IN_TABLES: tuple[Table[Any], ...] = (ToolStatistics(), UsageByDay())
