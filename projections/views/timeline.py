"""View of the timeline: spans of model calls and tool calls, and the gaps between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, NamedTuple, final

import msgspec

from turnledger.ledger import (
    MessageAppended,
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
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import combine, list_add
from turnledger.projections.persistent.containers import ListBuilder, PersistentList
from turnledger.projections.persistent.hashed import (
    HashedList,
    OpenItems,
    open_digest,
    own_copy,
    with_item,
    without_item,
)
from turnledger.projections.persistent.lazy_json import LazyList, lazy_list, none_shared, plain_json
from turnledger.projections.projection import BulkProjection, Folding, as_json
from turnledger.projections.views.conversation import step_of

SpanKind = Literal["model", "tool"]
SpanOutcome = Literal["running", "ok", "failed", "in_doubt"]


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


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Time between spans."""

    started_at: datetime
    ended_at: datetime

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


def _span_json(span: Span) -> Any:
    return {**as_json(span), "outcome": span.outcome}


def _gap_json(gap: Gap) -> Any:
    return {**as_json(gap), "seconds": gap.seconds}


class Running(NamedTuple):
    """A span that has not ended, and its place among all spans."""

    place: int
    span: Span


def _plain_running(running: Running) -> tuple[object, ...]:
    return _plain(running.span)


@final
class TimelineState(msgspec.Struct, frozen=True):
    """All spans in the order in which they began; an end replaces its span where it stands.

    The digest is of those that ended, in the order of their ends, and of those that are running.
    """

    spans: PersistentList[Span] = PersistentList()
    ended: HashedList[Span] = HashedList("spans", _add_span)
    running: OpenItems[Running] = {}
    # Of the last message.
    evaluation_id: str = ""
    step_num: int | None = None

    def steps(self) -> tuple[tuple[int | None, tuple[Span, ...]], ...]:
        """The spans grouped by their step numbers, in the order in which they began."""
        groups = groupby(self.spans, key=lambda span: span.step_num)
        return tuple((step_num, tuple(spans)) for step_num, spans in groups)

    def gaps(self) -> tuple[Gap, ...]:
        """Where nothing was under way between the first span and the last."""
        return tuple(_gaps(self.spans))


def _gaps(spans: Iterable[Span]) -> Iterator[Gap]:
    """Spans that began later have a later time: a run's clock does not go back.

    There is none before an inner step: the call that it is in was under way.
    """
    covered: datetime | None = None
    for span in spans:
        if covered is not None and span.started_at > covered and not span.parent:
            yield Gap(covered, span.started_at)
        end = span.ended_at or span.started_at
        covered = end if covered is None else max(covered, end)


@explain_methods(skip=("apply", "apply_all", "begin"))
class Timeline(BulkProjection[TimelineState]):
    """Pairs starts with ends."""

    name = "timeline"
    reads = (
        RunStarted,
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
            "gaps": LazyList(state.gaps, _gap_json, state, none_shared),
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

    def take(self, record: Record) -> None:
        event = record.event
        _TAKES[type(event)](self, event, record)

    def done(self) -> TimelineState:
        return TimelineState(
            self._spans.done(),
            self._before.extend(self._ended),
            self._running,
            self._evaluation_id,
            self._step_num,
        )

    def _message(self, event: MessageAppended, record: Record) -> None:
        message = event.message
        self._step_num = step_of(message, self._evaluation_id, self._step_num)
        self._evaluation_id = message.evaluation_id

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
        lost = self._running.get(key)
        if lost is not None:
            # It began again, and how the first attempt ended was not recorded.
            self._running = without_item(self._running, key)
            self._put(lost.place, msgspec.structs.replace(lost.span, outcome="in_doubt"))
        running = Running(self._spans.append(span), span)
        self._running = with_item(self._running, key, running, _plain_running)

    def _put(self, place: int, ended: Span) -> None:
        self._spans.replace(place, ended)
        self._ended.append(ended)

    def _model_ended(self, event: ModelReplied | ModelCallFailed, record: Record) -> None:
        if isinstance(event, ModelCallFailed) and event.call_id and not event.final:
            self._attempt_failed(_model_key(event))
            return
        outcome: SpanOutcome = "ok" if type(event) is ModelReplied else "failed"
        self._end(_model_key(event), outcome, record)

    def _attempt_failed(self, key: str) -> None:
        """A step's request is sent again: its span goes on."""
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
        running = self._running.get(key)
        if running is None:
            return
        place, span = running
        self._running = without_item(self._running, key)
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
        self._put(place, ended)

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if event.kind == "fork":
            # What the parent had under way there ends elsewhere, if it ends.
            for place, span in self._running.values():
                self._put(place, msgspec.structs.replace(span, outcome="in_doubt"))
            self._running = {}
        else:
            self.__init__(TimelineState())  # type: ignore[misc]


def _model_key(event: ModelCalled | ModelReplied | ModelCallFailed) -> str:
    """What the events of a model call have in common; a step is one of the calls of its run."""
    if event.call_id:
        return f"tool\n\n{event.call_id}"
    return f"model\n{event.evaluation_id}\n{event.turn}"


def _tool_key(event: ToolCallStarted | _ToolEnd) -> str:
    return f"tool\n{event.evaluation_id}\n{event.call_id}"


_ToolEnd = ToolCallCompleted | ToolCallFailed | ToolCallInDoubt
_TOOL_OUTCOMES: dict[type, SpanOutcome] = {
    ToolCallCompleted: "ok",
    ToolCallFailed: "failed",
    ToolCallInDoubt: "in_doubt",
}
_TAKES: dict[type, Callable[[_Folding, Any, Record], None]] = {
    RunStarted: _Folding._run_started,
    MessageAppended: _Folding._message,
    ModelCalled: _Folding._model_called,
    ModelReplied: _Folding._model_ended,
    ModelCallFailed: _Folding._model_ended,
    ToolCallStarted: _Folding._tool_started,
    ToolCallCompleted: _Folding._tool_ended,
    ToolCallFailed: _Folding._tool_ended,
    ToolCallInDoubt: _Folding._tool_ended,
}
