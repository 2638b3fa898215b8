"""The tool calls of a run: what the assistant asked for, and what became of each.

A call is pending until its handler starts, and in doubt if that was the last that was
heard of it. A tool's message alone closes its call, with or without a status event. The
calls of an evaluation that was superseded wait for nobody. Once the assistant speaks in
another turn, what has ended is settled: the same id then means another call.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, final
from uuid import UUID

import msgspec

from ledger import (
    EvaluationSuperseded,
    InnerMessage,
    MessageAppended,
    Record,
    RunStarted,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
)
from projections.persistent import (
    Cold,
    HashedList,
    UnderWay,
    begun,
    digest_of,
    over,
    owned,
    under_way,
)
from projections.projection import BulkProjection, Folding, as_json
from projections.running_hash import combine, list_add

CallStatus = Literal["pending", "started", "completed", "failed", "in_doubt"]


class ToolCallView(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call: who asked for what, how often it was tried, and its outcome.

    `number` counts the run's calls. `message_id` is the tool message's that answered it.
    """

    call_id: str
    name: str
    arguments: str = "{}"
    evaluation_id: str = ""
    turn: int = 0
    number: int = 0
    status: CallStatus = "pending"
    attempts: int = 0
    asked_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    message_id: UUID | None = None
    result: str | None = None
    value: Any = None
    error_type: str | None = None
    error_message: str | None = None
    decision: str | None = None
    decision_value: Any = None
    decision_text: str = ""
    decided_by: str = ""
    superseded: bool = False

    @property
    def is_over(self) -> bool:
        return self.status == "completed" or self.status == "failed"


def _plain(call: ToolCallView) -> tuple[object, ...]:
    """What a digest is of. Not the times: the store gives them, after a digest is made.
    Not the result: the message that `message_id` names is in the conversation's digest."""
    return (
        call.call_id,
        call.name,
        call.arguments,
        call.evaluation_id,
        call.turn,
        call.number,
        call.status,
        call.attempts,
        call.message_id,
        call.value,
        call.error_type,
        call.error_message,
        call.decision,
        call.decision_value,
        call.decision_text,
        call.decided_by,
        call.superseded,
    )


def _add_call(running: bytes, call: ToolCallView) -> bytes:
    return list_add(running, _plain(call))


def _always(value: bool) -> bool:
    return value


@final
class ToolsState(msgspec.Struct, frozen=True):
    """The calls: those of which nothing more is expected, and by key those that go on."""

    settled: HashedList[ToolCallView] = HashedList("tool calls", _add_call)
    # Not completed and not failed.
    open: UnderWay[ToolCallView] = {}
    # Completed or failed in the assistant's last turn: what is still missing of them may come.
    ended: UnderWay[ToolCallView] = {}
    superseded: UnderWay[bool] = {}
    # What tool messages were changed to: message id and text.
    amended: HashedList[tuple[UUID, str]] = HashedList("amended tool messages")
    # How many calls there were, and the evaluation and turn in which the assistant last spoke.
    count: int = 0
    spoke: str = ""

    @property
    def calls(self) -> tuple[ToolCallView, ...]:
        """All of them, in the order in which they were asked for."""
        calls = [*self.settled, *self.ended.values(), *self.open.values()]
        calls.sort(key=lambda call: call.number)
        if not len(self.amended):
            return tuple(calls)
        texts = dict(self.amended)
        return tuple(
            msgspec.structs.replace(call, result=texts[call.message_id])
            if call.message_id in texts
            else call
            for call in calls
        )

    def pending(self) -> tuple[ToolCallView, ...]:
        """The calls that somebody still has to see to: not completed, failed or superseded."""
        return tuple(call for call in self.open.values() if not call.superseded)

    def get(self, call_id: str, evaluation_id: str | None = None) -> ToolCallView | None:
        """A call by its id, the latest if it was used several times."""
        if evaluation_id is not None:
            key = _key(evaluation_id, call_id)
            going_on = self.open.get(key) or self.ended.get(key)
            if going_on is not None and not len(self.amended):
                return going_on
        for call in reversed(self.calls):
            if call.call_id == call_id and evaluation_id in (None, call.evaluation_id):
                return call
        return None


def _key(evaluation_id: str, call_id: str) -> str:
    return f"{evaluation_id}\n{call_id}"


class PendingTools(BulkProjection[ToolsState]):
    """Folds calls, starts and ends."""

    name = "tools"
    reads = (
        RunStarted,
        MessageAppended,
        ToolCallStarted,
        ToolCallCompleted,
        ToolCallFailed,
        ToolCallInDoubt,
        ToolCallDecided,
        ToolMessageAmended,
        EvaluationSuperseded,
    )

    def initial(self) -> ToolsState:
        return ToolsState()

    def begin(self, state: ToolsState) -> _Folding:
        return _Folding(state)

    def to_json(self, state: ToolsState) -> Any:
        return [{**as_json(call), "status": call.status} for call in state.calls]

    def stored(self, state: ToolsState) -> Any:
        return as_json(
            _Kept(
                state.settled.cold,
                _without_results(state.open),
                _without_results(state.ended),
                tuple(state.superseded),
                state.amended.cold,
                state.count,
                state.spoke,
            )
        )

    def restored(self, kept: Any) -> ToolsState:
        known = msgspec.convert(kept, _Kept)
        return ToolsState(
            HashedList("tool calls", _add_call, cold=known.settled),
            under_way(dict(known.open), _plain),
            under_way(dict(known.ended), _plain),
            under_way(dict.fromkeys(known.superseded, True), _always),
            HashedList("amended tool messages", cold=known.amended),
            known.count,
            known.spoke,
        )

    def digest(self, state: ToolsState) -> bytes:
        return combine(
            "tools",
            state.settled.digest,
            digest_of(state.open, _plain),
            digest_of(state.ended, _plain),
            digest_of(state.superseded, _always),
            state.amended.digest,
            b"%d" % state.count,
            state.spoke.encode(),
        )


class _Kept(msgspec.Struct, frozen=True):
    """What a stored fold keeps: the calls that go on, without what their messages say."""

    settled: Cold
    open: tuple[tuple[str, ToolCallView], ...]
    ended: tuple[tuple[str, ToolCallView], ...]
    superseded: tuple[str, ...]
    amended: Cold
    count: int
    spoke: str


def _without_results(calls: UnderWay[ToolCallView]) -> tuple[tuple[str, ToolCallView], ...]:
    return tuple((key, msgspec.structs.replace(call, result=None)) for key, call in calls.items())


class _Folding(Folding[ToolsState]):
    """Calls while their ends are found."""

    def __init__(self, state: ToolsState) -> None:
        self._settled = state.settled
        self._newly: list[ToolCallView] = []
        self._open = owned(state.open)
        self._ended = owned(state.ended)
        self._superseded = state.superseded
        self._amended = state.amended
        self._count = state.count
        self._spoke = state.spoke

    def take(self, record: Record) -> None:
        event = record.event
        _TAKES[type(event)](self, event, record)

    def done(self) -> ToolsState:
        return ToolsState(
            self._settled.extend(self._newly),
            self._open,
            self._ended,
            self._superseded,
            self._amended,
            self._count,
            self._spoke,
        )

    # --- messages ---

    def _message(self, event: MessageAppended, record: Record) -> None:
        message = event.message
        if message.role == "assistant":
            spoke = f"{message.evaluation_id}\n{message.turn}"
            if spoke != self._spoke:
                self._newly.extend(self._ended.values())
                self._ended, self._spoke = {}, spoke
            for asked in message.tool_calls:
                self._ask(message, asked, record)
        elif message.role == "tool" and message.tool_call_id is not None:
            self._answer(message, _key(message.evaluation_id, message.tool_call_id), record)

    def _ask(self, message: InnerMessage, asked: ToolCallRecord, record: Record) -> None:
        key = _key(message.evaluation_id, asked.call_id)
        if self._open.get(key) is not None or self._ended.get(key) is not None:
            return
        self._count += 1
        call = ToolCallView(
            asked.call_id,
            asked.name,
            asked.arguments,
            message.evaluation_id,
            message.turn,
            self._count,
            asked_at=record.recorded_at,
            superseded=message.evaluation_id in self._superseded,
        )
        self._open = begun(self._open, key, call, _plain)

    def _answer(self, message: InnerMessage, key: str, record: Record) -> None:
        call = self._open.get(key) or self._ended.get(key)
        if call is None or call.message_id is not None:
            return
        status: CallStatus = call.status
        if not call.is_over:
            status = "failed" if message.is_error else "completed"
        answered = msgspec.structs.replace(
            call,
            status=status,
            message_id=message.message_id,
            result=message.content,
            ended_at=call.ended_at or record.recorded_at,
        )
        self._put(key, answered)

    def _amend(self, event: ToolMessageAmended, record: Record) -> None:
        self._amended = self._amended.append((event.message_id, event.content))

    # --- what became of it ---

    def _put(self, key: str, call: ToolCallView) -> None:
        if call.is_over:
            self._open = over(self._open, key)
            self._ended = begun(self._ended, key, call, _plain)
        else:
            self._ended = over(self._ended, key)
            self._open = begun(self._open, key, call, _plain)

    def _known(self, event: _StatusEvent) -> tuple[str, ToolCallView]:
        """The call that an event is about; one that nobody asked for is a call too."""
        key = _key(event.evaluation_id, event.call_id)
        call = self._open.get(key) or self._ended.get(key)
        if call is None:
            self._count += 1
            call = ToolCallView(
                event.call_id,
                event.name,
                evaluation_id=event.evaluation_id,
                number=self._count,
                superseded=event.evaluation_id in self._superseded,
            )
        return key, call

    def _started(self, event: ToolCallStarted, record: Record) -> None:
        key, call = self._known(event)
        # What a person decided was about an earlier attempt.
        started = msgspec.structs.replace(
            call,
            status="started",
            attempts=event.attempt,
            started_at=record.recorded_at,
            decision=None,
            decision_value=None,
            decision_text="",
            decided_by="",
        )
        self._put(key, started)

    def _completed(self, event: ToolCallCompleted, record: Record) -> None:
        key, call = self._known(event)
        completed = msgspec.structs.replace(
            call, status="completed", value=event.value, ended_at=record.recorded_at
        )
        self._put(key, completed)

    def _failed(self, event: ToolCallFailed, record: Record) -> None:
        key, call = self._known(event)
        failed = msgspec.structs.replace(
            call,
            status="failed",
            error_type=event.error_type,
            error_message=event.error_message,
            ended_at=record.recorded_at,
        )
        self._put(key, failed)

    def _in_doubt(self, event: ToolCallInDoubt, record: Record) -> None:
        key, call = self._known(event)
        self._put(key, _doubted(call))

    def _decided(self, event: ToolCallDecided, record: Record) -> None:
        waiting = [
            (key, call)
            for key, call in self._open.items()
            if call.call_id == event.call_id and not call.superseded
        ]
        if waiting:
            key, call = waiting[-1]
            decided = msgspec.structs.replace(
                call,
                decision=event.decision,
                decision_value=event.value,
                decision_text=event.text,
                decided_by=event.decided_by,
            )
            self._put(key, decided)

    def _supersede(self, event: EvaluationSuperseded, record: Record) -> None:
        self._superseded = begun(owned(self._superseded), event.evaluation_id, True, _always)
        for key, call in list(self._open.items()):
            if call.evaluation_id == event.evaluation_id:
                self._put(key, msgspec.structs.replace(call, superseded=True))

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if event.kind != "fork":
            self.__init__(ToolsState())  # type: ignore[misc]
            return
        for key, call in list(self._open.items()):
            if call.status == "started" and not call.superseded:
                self._put(key, _doubted(call))


_StatusEvent = ToolCallStarted | ToolCallCompleted | ToolCallFailed | ToolCallInDoubt
_TAKES: dict[type, Callable[[_Folding, Any, Record], None]] = {
    RunStarted: _Folding._run_started,
    MessageAppended: _Folding._message,
    ToolCallStarted: _Folding._started,
    ToolCallCompleted: _Folding._completed,
    ToolCallFailed: _Folding._failed,
    ToolCallInDoubt: _Folding._in_doubt,
    ToolCallDecided: _Folding._decided,
    ToolMessageAmended: _Folding._amend,
    EvaluationSuperseded: _Folding._supersede,
}


def _doubted(call: ToolCallView) -> ToolCallView:
    """In doubt. Somebody may have decided already what became of it."""
    return msgspec.structs.replace(call, status="in_doubt")
