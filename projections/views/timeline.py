"""View of the timeline: spans of calls and of workers, and the gaps where nothing was done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import merge
from itertools import chain, groupby, islice, pairwise
from typing import Any, ClassVar, Literal, final

import msgspec

from turnledger.ledger import (
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunAbandoned,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.clock import to_datetime
from turnledger.projections.digests import combine, list_add
from turnledger.projections.persistent.containers import ListBuilder, PersistentList
from turnledger.projections.persistent.hashed import (
    FEW,
    HashedList,
    OpenItems,
    open_digest,
    own_copy,
    with_item,
    without_item,
)
from turnledger.projections.persistent.lazy_json import LazyList, lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, Takes, as_json

SpanKind = Literal["model", "tool"]
SpanOutcome = Literal["running", "ok", "failed", "in_doubt"]
WorkerOutcome = Literal["working", "ended", "released", "died"]


class Span(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model call or a tool call, from its start to its end.

    `step_num` is the step of the last message before it in its evaluation. A durable step has its
    `call_id`, and the call that it is in as `parent`; `failed_attempts` are those of a model call
    that were tried again before it ended.
    """

    kind: SpanKind
    name: str
    from_version: int
    started_at: datetime
    to_version: int | None = None
    ended_at: datetime | None = None
    outcome: SpanOutcome = "running"
    attempt: int = 1
    step_num: int | None = None
    call_id: str = ""
    parent: str = ""
    failed_attempts: int = 0


class WorkerSpan(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The time for which a worker had the run, from its claim to its last record.

    A worker `ended` if the run ended, waits or was forked there. It `died` if a call of its
    own was open at the next claim, or the run was resumed with that claim; one that was stopped
    between two calls looks the same. Otherwise it `released` the run. The end of a claim is not
    recorded: `to_version` is the last version before the next claim, and `ended_at` the time of
    the last record of a call, a message or the run's status.
    """

    worker: str
    epoch: int
    from_version: int
    started_at: datetime
    to_version: int | None = None
    ended_at: datetime | None = None
    outcome: WorkerOutcome = "working"


class Gap(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Time between spans; or `dead` time, from a worker's last record to the next claim."""

    started_at: datetime
    ended_at: datetime
    dead: bool = False
    # The worker that died.
    worker: str = ""

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()


def _plain(span: Span) -> tuple[object, ...]:
    """What the digest of a span is of. Not the times, which the store sets, nor the step."""
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


def _span_json(span: Span | WorkerSpan) -> Any:
    return {**as_json(span), "outcome": span.outcome}


def _gap_json(gap: Gap) -> Any:
    return {**as_json(gap), "seconds": gap.seconds}


class Running(msgspec.Struct, frozen=True, gc=False):
    """A span that has not ended, and its place among all spans."""

    place: int
    span: Span


def _plain_running(running: Running) -> tuple[object, ...]:
    return _plain(running.span)


@final
class TimelineState(msgspec.Struct, frozen=True):
    """All spans in the order in which they began; an end replaces its span where it stands.

    The digest is of those that ended, in the order of their ends, and of those that are running.
    It knows nothing of workers: a recovered run has others than one that was not interrupted.
    """

    spans: PersistentList[Span] = PersistentList()
    ended: HashedList[Span] = HashedList("spans", _add_span)
    running: OpenItems[Running] = {}
    # Of the last message.
    evaluation_id: str = ""
    step_num: int | None = None
    workers: PersistentList[WorkerSpan] = PersistentList()
    # For each span, the place of the first one that may have been running when it began: its own
    # if none was. All before that place had ended.
    reaches: PersistentList[int] = PersistentList()
    # When the last record was committed, in microseconds.
    seen: int = 0

    def steps(self) -> tuple[tuple[int | None, tuple[Span, ...]], ...]:
        """The spans grouped by their step numbers, in the order in which they began."""
        groups = groupby(self.spans, key=lambda span: span.step_num)
        return tuple((step_num, tuple(spans)) for step_num, spans in groups)

    def gaps(self, first: int = 0, end: int | None = None) -> tuple[Gap, ...]:
        """Where nothing was under way between the first span and the last, and dead time.

        Dead time is a gap even if a call was open. With a range of places among the spans, it
        costs the range, and how far back the calls began that were open at its beginning. Ranges
        that share no span share no gap, and together have all.

        Args:
            first: Without gaps that ended before the span at this place: by default all.
            end: Without gaps that ended after the span before this place; by default, and if
                that is the last span, all.
        """
        count = len(self.spans)
        first, stop = min(max(first, 0), count), count if end is None else min(max(end, 0), count)
        if count and stop <= first:
            return ()
        begin = self.reaches[first - 1] if first else 0
        after = self.spans[first - 1].started_at if first else None
        until = self.spans[stop - 1].started_at if stop < count else None
        found = _gaps(self.spans[begin:stop], self._dead(after, until))
        return tuple(
            gap
            for gap in found
            if (after is None or gap.ended_at > after) and (until is None or gap.ended_at <= until)
        )

    def _dead(self, after: datetime | None, until: datetime | None) -> Iterator[Gap]:
        """Dead time that ended after a moment and until another: with the next worker's claim."""
        first = bisect_right(self.workers, after, key=_began) if after is not None else 1
        stop = bisect_right(self.workers, until, key=_began) if until is not None else None
        for before, now in pairwise(self.workers[max(first - 1, 0) : stop]):
            if before.outcome == "died" and before.ended_at is not None:
                yield Gap(before.ended_at, now.started_at, dead=True, worker=before.worker)


def _began(span: Span | WorkerSpan | Gap) -> datetime:
    return span.started_at


def _gaps(spans: Iterable[Span], dead: Iterable[Gap]) -> Iterator[Gap]:
    """Spans that began later have a later time: a run's clock does not go back.

    There is none before an inner step: the call that it is in was under way.
    """
    covered: datetime | None = None
    items: Iterable[Span | Gap] = merge(spans, dead, key=_began)
    for item in items:
        inner = isinstance(item, Span) and item.parent
        if covered is not None and item.started_at > covered and not inner:
            yield Gap(covered, item.started_at)
        end = item.ended_at or item.started_at
        if isinstance(item, Gap):
            yield item
            covered = max(covered, end) if covered is not None else None
        else:
            covered = end if covered is None else max(covered, end)


@explain_methods(skip=("apply", "apply_all", "begin"))
class Timeline(BulkProjection[TimelineState]):
    """Pairs starts with ends, and a worker's claim with what ended it."""

    name = "timeline"
    reads = (
        RunStarted,
        RunClaimed,
        RunResumed,
        RunWaiting,
        RunCompleted,
        RunFailed,
        RunParked,
        RunAbandoned,
        MessageAppended,
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
        return plain_json(self.lazy_json(state))

    def lazy_json(self, state: TimelineState) -> Any:
        return {
            "spans": lazy_list(state.spans, _span_json),
            "workers": lazy_list(state.workers, _span_json),
            "gaps": LazyList(state.gaps, _gap_json, state),
        }

    def digest(self, state: TimelineState) -> bytes:
        return combine("timeline", state.ended.digest, open_digest(state.running, _plain_running))


class _Folding(Folding[TimelineState]):
    """Spans while records are folded."""

    def __init__(self, state: TimelineState) -> None:
        self._spans = ListBuilder(state.spans)
        self._before = state.ended
        self._ended: list[Span] = []
        self._running = own_copy(state.running)
        self._evaluation_id, self._step_num = state.evaluation_id, state.step_num
        self._workers = ListBuilder(state.workers)
        self._reaches = ListBuilder(state.reaches)
        self._seen_before = state.seen
        self._last: Record | None = None

    def done(self) -> TimelineState:
        return TimelineState(
            self._spans.done(),
            self._before.extend(self._ended),
            self._running,
            self._evaluation_id,
            self._step_num,
            self._workers.done(),
            self._reaches.done(),
            self._seen,
        )

    def _message(self, event: MessageAppended, record: Record) -> None:
        self._last, message = record, event.message
        evaluation_id, step_num = message.evaluation_id, message.step_num
        if step_num is not None or evaluation_id != self._evaluation_id:
            self._evaluation_id, self._step_num = evaluation_id, step_num

    def _model_called(self, event: ModelCalled, record: Record) -> None:
        name = event.model or event.adapter or event.name or "model"
        self._begin(_model_key(event), "model", name, event, record)

    def _tool_started(self, event: ToolCallStarted, record: Record) -> None:
        self._begin(_tool_key(event), "tool", event.name, event, record)

    def _begin(
        self,
        key: str,
        kind: SpanKind,
        name: str,
        event: ModelCalled | ToolCallStarted,
        record: Record,
    ) -> None:
        self._last, running = record, self._running
        if key in running:
            # It began again, and how the first attempt ended was not recorded.
            lost = self._stopped(key)
            assert lost is not None
            self._put(lost.place, msgspec.structs.replace(lost.span, outcome="in_doubt"))
            running = self._running
        span = Span(
            kind,
            name,
            record.version,
            record.recorded_at,
            attempt=event.attempt,
            step_num=self._step_num if event.evaluation_id == self._evaluation_id else None,
            call_id="" if event.evaluation_id else event.call_id,
            parent=event.parent,
        )
        place = self._spans.append(span)
        self._reaches.append(self._reach(place) if running else place)
        if type(running) is dict and len(running) < FEW:  # nearly always
            running[key] = Running(place, span)
        else:
            self._running = with_item(running, key, Running(place, span), _plain_running)

    def _stopped(self, key: str) -> Running | None:
        """Take out a span that is running; None if there is none."""
        running = self._running
        if type(running) is dict:
            return running.pop(key, None)
        found = running.get(key)
        self._running = without_item(running, key)
        return found

    def _reach(self, place: int) -> int:
        """The place of the first span that is running, of one that begins at this place."""
        if isinstance(self._running, dict):
            return next(iter(self._running.values())).place
        # Finding the first of many would cost all of them; that of the span before is not later.
        return next(reversed(self._reaches), 0)

    @property
    def _seen(self) -> int:
        """When the record before was committed."""
        return self._seen_before if self._last is None else self._last.commit

    def _put(self, place: int, ended: Span) -> None:
        self._spans.replace(place, ended)
        self._ended.append(ended)

    def _model_ended(self, event: ModelReplied | ModelCallFailed, record: Record) -> None:
        if isinstance(event, ModelCallFailed) and event.call_id and not event.final:
            self._attempt_failed(_model_key(event), record)
            return
        outcome: SpanOutcome = "ok" if type(event) is ModelReplied else "failed"
        self._end(_model_key(event), outcome, record)

    def _attempt_failed(self, key: str, record: Record) -> None:
        """A step's request is sent again: its span goes on."""
        self._last = record
        running = self._running.get(key)
        if running is not None:
            failed = running.span.failed_attempts + 1
            span = msgspec.structs.replace(running.span, failed_attempts=failed)
            self._spans.replace(running.place, span)
            again = Running(running.place, span)
            self._running = with_item(self._running, key, again, _plain_running)

    def _tool_ended(self, event: _ToolEnd, record: Record) -> None:
        self._end(_tool_key(event), _TOOL_OUTCOMES[type(event)], record)

    def _end(self, key: str, outcome: SpanOutcome, record: Record) -> None:
        self._last = record
        running = self._stopped(key)
        if running is None:
            return
        span = running.span
        ended = Span(
            span.kind,
            span.name,
            span.from_version,
            span.started_at,
            record.version,
            record.recorded_at,
            outcome,
            span.attempt,
            span.step_num,
            span.call_id,
            span.parent,
            span.failed_attempts,
        )
        self._put(running.place, ended)

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if event.kind == "fork":
            # What the parent had under way there ends elsewhere, if it ends.
            for one in self._running.values():
                self._put(one.place, msgspec.structs.replace(one.span, outcome="in_doubt"))
            self._running = {}
            self._leave("ended", record.version - 1, self._seen)
        else:
            self.__init__(TimelineState())  # type: ignore[misc]
        self._last = record

    def _claimed(self, event: RunClaimed, record: Record) -> None:
        worker = next(reversed(self._workers), None)
        if worker is not None:
            outcome: WorkerOutcome = "died" if self._left_open(worker) else "released"
            self._leave(outcome, record.version - 1, self._seen)
        begun = WorkerSpan(event.worker, event.epoch, record.version, record.recorded_at)
        self._workers.append(begun)
        self._last = record

    def _left_open(self, worker: WorkerSpan) -> bool:
        """Whether a worker began a call that has not ended: it alone could have ended it."""
        if not isinstance(self._running, dict):
            return True  # many: it would cost all of them to tell which are its own
        began = (one.span.from_version for one in self._running.values())
        return any(version > worker.from_version for version in began)

    def _resumed(self, event: RunResumed, record: Record) -> None:
        """The run was interrupted, by the death of the worker before if it is a new one's claim."""
        self._last = record
        now, before = islice(chain(reversed(self._workers), (None, None)), 2)
        if now is None or before is None or event.from_version > now.from_version:
            return
        if before.outcome == "released":
            died = msgspec.structs.replace(before, outcome="died")
            self._workers.replace(len(self._workers) - 2, died)

    def _run_ended(self, event: _RunEnd, record: Record) -> None:
        self._leave("ended", record.version, record.commit)
        self._last = record

    def _leave(self, outcome: WorkerOutcome, version: int, at: int) -> None:
        """End the span of the worker that has the run, if there is one."""
        worker = next(reversed(self._workers), None)
        if worker is not None and worker.outcome == "working":
            left = msgspec.structs.replace(
                worker, to_version=version, ended_at=to_datetime(at), outcome=outcome
            )
            self._workers.replace(len(self._workers) - 1, left)

    takes: ClassVar[Takes] = {
        RunStarted: _run_started,
        RunClaimed: _claimed,
        RunResumed: _resumed,
        **dict.fromkeys((RunWaiting, RunCompleted, RunFailed, RunParked, RunAbandoned), _run_ended),
        MessageAppended: _message,
        ModelCalled: _model_called,
        ModelReplied: _model_ended,
        ModelCallFailed: _model_ended,
        ToolCallStarted: _tool_started,
        ToolCallCompleted: _tool_ended,
        ToolCallFailed: _tool_ended,
        ToolCallInDoubt: _tool_ended,
    }


def _model_key(event: ModelCalled | ModelReplied | ModelCallFailed) -> str:
    """What the events of a model call have in common; a step is one of the calls of its run."""
    if event.call_id:
        return f"tool\n\n{event.call_id}"
    return f"model\n{event.evaluation_id}\n{event.turn}"


def _tool_key(event: ToolCallStarted | _ToolEnd) -> str:
    return f"tool\n{event.evaluation_id}\n{event.call_id}"


_ToolEnd = ToolCallCompleted | ToolCallFailed | ToolCallInDoubt
_RunEnd = RunWaiting | RunCompleted | RunFailed | RunParked | RunAbandoned
_TOOL_OUTCOMES: dict[type, SpanOutcome] = {
    ToolCallCompleted: "ok",
    ToolCallFailed: "failed",
    ToolCallInDoubt: "in_doubt",
}
