"""When a run did what: spans of model calls and tools, for people to look at.

What no span covers is a gap: the run's own code, a wait, or a process that was gone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, final

import msgspec

from ledger import (
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from projections.persistent import HashedMap, UnderWay, begun, over
from projections.projection import Projection, as_json
from projections.running_hash import combine

SpanKind = Literal["model", "tool"]
SpanOutcome = Literal["running", "ok", "failed", "in_doubt"]


class Span(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that took time."""

    kind: SpanKind
    name: str
    from_version: int
    started_at: datetime
    to_version: int | None = None
    ended_at: datetime | None = None
    outcome: SpanOutcome = "running"
    attempt: int = 1


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Time between spans."""

    started_at: datetime
    ended_at: datetime

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()


@final
class TimelineState(msgspec.Struct, frozen=True):
    """The spans in the order in which they began."""

    spans: HashedMap[Span] = HashedMap()
    # Where the spans are that have not ended.
    open_keys: UnderWay[str] = {}

    def gaps(self) -> tuple[Gap, ...]:
        """Where nothing was under way between the first span and the last."""
        found: list[Gap] = []
        covered: datetime | None = None
        for span in sorted(self.spans.values(), key=lambda span: span.started_at):
            if covered is not None and span.started_at > covered:
                found.append(Gap(covered, span.started_at))
            end = span.ended_at or span.started_at
            covered = end if covered is None else max(covered, end)
        return tuple(found)


class Timeline(Projection[TimelineState]):
    """Pairs beginnings with ends."""

    name = "timeline"
    reads = (
        RunStarted,
        ModelCalled,
        ModelReplied,
        ModelCallFailed,
        ToolCallStarted,
        ToolCallCompleted,
        ToolCallFailed,
        ToolCallInDoubt,
    )

    def initial(self) -> TimelineState:
        return TimelineState()

    def apply(self, state: TimelineState, record: Record) -> TimelineState:
        event = record.event
        if isinstance(event, ModelCalled):
            name = event.model or event.adapter or "model"
            key = f"model\n{event.evaluation_id}\n{event.turn}"
            return _begin(state, key, "model", name, event.attempt, record)
        if isinstance(event, ToolCallStarted):
            key = f"tool\n{event.evaluation_id}\n{event.call_id}"
            return _begin(state, key, "tool", event.name, event.attempt, record)
        if isinstance(event, ModelReplied | ModelCallFailed):
            key = f"model\n{event.evaluation_id}\n{event.turn}"
            return _end(state, key, "ok" if isinstance(event, ModelReplied) else "failed", record)
        if isinstance(event, ToolCallCompleted | ToolCallFailed | ToolCallInDoubt):
            key = f"tool\n{event.evaluation_id}\n{event.call_id}"
            outcomes: dict[type, SpanOutcome] = {
                ToolCallCompleted: "ok",
                ToolCallFailed: "failed",
                ToolCallInDoubt: "in_doubt",
            }
            return _end(state, key, outcomes[type(event)], record)
        assert isinstance(event, RunStarted)
        return _left(state) if event.kind == "fork" else self.initial()

    def to_json(self, state: TimelineState) -> Any:
        return {
            "spans": [{**as_json(span), "outcome": span.outcome} for span in state.spans.values()],
            "gaps": [{**as_json(gap), "seconds": gap.seconds} for gap in state.gaps()],
        }

    def digest(self, state: TimelineState) -> bytes:
        return combine("timeline", state.spans.digest)


def _begin(
    state: TimelineState, key: str, kind: SpanKind, name: str, attempt: int, record: Record
) -> TimelineState:
    place = f"{record.version}"
    span = Span(kind, name, record.version, record.recorded_at, attempt=attempt)
    return TimelineState(state.spans.put(place, span), begun(state.open_keys, key, place))


def _end(state: TimelineState, key: str, outcome: SpanOutcome, record: Record) -> TimelineState:
    place = state.open_keys.get(key)
    span = state.spans.get(place) if place is not None else None
    if place is None or span is None:
        return state
    ended = msgspec.structs.replace(
        span, to_version=record.version, ended_at=record.recorded_at, outcome=outcome
    )
    return TimelineState(state.spans.put(place, ended), over(state.open_keys, key))


def _left(state: TimelineState) -> TimelineState:
    """In a fork: what the parent had under way there ends elsewhere, if it ends."""
    spans = state.spans
    for place in state.open_keys.values():
        span = spans.get(place)
        if span is not None:
            spans = spans.put(place, msgspec.structs.replace(span, outcome="in_doubt"))
    return TimelineState(spans)
