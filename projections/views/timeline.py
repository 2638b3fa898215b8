"""When a run did what: spans of model calls and tools, for people to look at.

What no span covers is a gap: the run's own code, a wait, or a process that was gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal, final

import msgspec

from turnledger.ledger import (
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
from turnledger.ledger.clock import to_micros
from turnledger.projections.digests import combine, list_add
from turnledger.projections.persistent.hashed import (
    HashedList,
    UnderWay,
    begun,
    digest_of,
    over,
    owned,
)
from turnledger.projections.persistent.lazy_json import Items, none_shared, not_shared, whole
from turnledger.projections.persistent.sorted_view import InOrder
from turnledger.projections.projection import BulkProjection, Folding, as_json

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


def _plain(span: Span) -> tuple[object, ...]:
    """What a digest is of. Not the times: the store gives them, after a digest is made."""
    return (
        span.kind,
        span.name,
        span.from_version,
        span.to_version,
        span.outcome,
        span.attempt,
    )


def _add_span(running: bytes, span: Span) -> bytes:
    return list_add(running, _plain(span))


def _span_json(span: Span) -> Any:
    return {**as_json(span), "outcome": span.outcome}


def _gap_json(gap: Gap) -> Any:
    return {**as_json(gap), "seconds": gap.seconds}


@final
class TimelineState(msgspec.Struct, frozen=True):
    """Spans that are over, in the order in which they ended, and those that are not."""

    ended: HashedList[Span] = HashedList("spans", _add_span)
    running: UnderWay[Span] = {}

    @property
    def spans(self) -> tuple[Span, ...]:
        """All of them, in the order in which they began."""
        return tuple(self.in_order())

    def in_order(self) -> InOrder[Span]:
        """The same, each fetched when it is looked at."""
        return InOrder(self.ended, self.running.values(), _version)

    def by_time(self) -> InOrder[Span]:
        """By the moments at which they began."""
        return InOrder(self.ended, self.running.values(), _moment, _version)

    def gaps(self) -> tuple[Gap, ...]:
        """Where nothing was under way between the first span and the last."""
        return tuple(Gaps(self))


class Gaps:
    """The gaps of a timeline, each found when it is looked at."""

    __slots__ = ("_state",)

    def __init__(self, state: TimelineState) -> None:
        self._state = state

    def __iter__(self) -> Iterator[Gap]:
        covered: datetime | None = None
        for span in self._state.by_time():
            if covered is not None and span.started_at > covered:
                yield Gap(covered, span.started_at)
            end = span.ended_at or span.started_at
            covered = end if covered is None else max(covered, end)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, place: int) -> Gap:
        for gap in islice(self, place, None):
            return gap
        raise IndexError(place)


def _version(span: Span) -> int:
    return span.from_version


def _moment(span: Span) -> int:
    return to_micros(span.started_at)


def _same_spans(earlier: TimelineState, later: TimelineState) -> int:
    """How many spans both begin with: all that began before one that only one has.

    Spans stand in the order in which they began.
    """
    if not later.ended.goes_on_from(earlier.ended):
        return 0
    newly = islice(later.ended.backwards(), len(later.ended) - len(earlier.ended))
    theirs = chain(later.running.values(), newly)
    first = min(not_shared(earlier.running.values(), theirs, _version), default=None)
    count = len(earlier.ended) + len(earlier.running)
    if first is None:
        return count
    for span in earlier.ended.backwards():
        if span.to_version is not None and span.to_version < first:
            break  # it ended before, and so did all that ended before it
        count -= span.from_version >= first
    return count - sum(span.from_version >= first for span in earlier.running.values())


class Timeline(BulkProjection[TimelineState]):
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

    def begin(self, state: TimelineState) -> _Folding:
        return _Folding(state)

    def to_json(self, state: TimelineState) -> Any:
        return whole(self.outline(state))

    def outline(self, state: TimelineState) -> Any:
        return {
            "spans": Items(state.in_order, _span_json, state, _same_spans),
            "gaps": Items(lambda: Gaps(state), _gap_json, state, none_shared),
        }

    def digest(self, state: TimelineState) -> bytes:
        return combine("timeline", state.ended.digest, digest_of(state.running, _plain))


class _Folding(Folding[TimelineState]):
    """Spans while they are paired."""

    def __init__(self, state: TimelineState) -> None:
        self._before = state.ended
        self._ended: list[Span] = []
        self._running = owned(state.running)

    def take(self, record: Record) -> None:
        event = record.event
        _TAKES[type(event)](self, event, record)

    def done(self) -> TimelineState:
        return TimelineState(self._before.extend(self._ended), self._running)

    def _model_called(self, event: ModelCalled, record: Record) -> None:
        name = event.model or event.adapter or "model"
        key = f"model\n{event.evaluation_id}\n{event.turn}"
        self._begin(
            key, Span("model", name, record.version, record.recorded_at, attempt=event.attempt)
        )

    def _tool_started(self, event: ToolCallStarted, record: Record) -> None:
        key = f"tool\n{event.evaluation_id}\n{event.call_id}"
        self._begin(
            key, Span("tool", event.name, record.version, record.recorded_at, attempt=event.attempt)
        )

    def _begin(self, key: str, span: Span) -> None:
        lost = self._running.get(key)
        if lost is not None:
            # It began again: what became of the first time, nobody heard.
            self._running = over(self._running, key)
            self._ended.append(msgspec.structs.replace(lost, outcome="in_doubt"))
        self._running = begun(self._running, key, span, _plain)

    def _replied(self, event: ModelReplied, record: Record) -> None:
        self._end(f"model\n{event.evaluation_id}\n{event.turn}", "ok", record)

    def _call_failed(self, event: ModelCallFailed, record: Record) -> None:
        self._end(f"model\n{event.evaluation_id}\n{event.turn}", "failed", record)

    def _completed(self, event: ToolCallCompleted, record: Record) -> None:
        self._end(f"tool\n{event.evaluation_id}\n{event.call_id}", "ok", record)

    def _failed(self, event: ToolCallFailed, record: Record) -> None:
        self._end(f"tool\n{event.evaluation_id}\n{event.call_id}", "failed", record)

    def _doubted(self, event: ToolCallInDoubt, record: Record) -> None:
        self._end(f"tool\n{event.evaluation_id}\n{event.call_id}", "in_doubt", record)

    def _end(self, key: str, outcome: SpanOutcome, record: Record) -> None:
        span = self._running.get(key)
        if span is None:
            return
        self._running = over(self._running, key)
        self._ended.append(
            Span(
                span.kind,
                span.name,
                span.from_version,
                span.started_at,
                record.version,
                record.recorded_at,
                outcome,
                span.attempt,
            )
        )

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if event.kind == "fork":
            # What the parent had under way there ends elsewhere, if it ends.
            left = self._running.values()
            self._ended += [msgspec.structs.replace(span, outcome="in_doubt") for span in left]
        else:
            self._before, self._ended = TimelineState().ended, []
        self._running = {}


_TAKES: dict[type, Callable[[_Folding, Any, Record], None]] = {
    RunStarted: _Folding._run_started,
    ModelCalled: _Folding._model_called,
    ModelReplied: _Folding._replied,
    ModelCallFailed: _Folding._call_failed,
    ToolCallStarted: _Folding._tool_started,
    ToolCallCompleted: _Folding._completed,
    ToolCallFailed: _Folding._failed,
    ToolCallInDoubt: _Folding._doubted,
}
