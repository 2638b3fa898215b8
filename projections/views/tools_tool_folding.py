"""How events change what is known of tool calls: asked for, started, ended, doubted, decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from turnledger.ledger import (
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
from turnledger.projections.persistent.hashed import begun, over, owned
from turnledger.projections.projection import Folding
from turnledger.projections.views.tool_calls import (
    CallStatus,
    ToolCallView,
    ToolsState,
    call_key,
    itself,
    plain_call,
)


class ToolsFolding(Folding[ToolsState]):
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
        self._since = state.since

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
            self._since,
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
            self._answer(message, call_key(message.evaluation_id, message.tool_call_id), record)

    def _ask(self, message: InnerMessage, asked: ToolCallRecord, record: Record) -> None:
        key = call_key(message.evaluation_id, asked.call_id)
        if self._open.get(key) is not None or self._ended.get(key) is not None:
            return
        self._count_one(message.evaluation_id)
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
        self._open = begun(self._open, key, call, plain_call)

    def _count_one(self, evaluation_id: str) -> None:
        self._count += 1
        if self._since.get(evaluation_id) is None:
            settled = len(self._settled) + len(self._newly)
            self._since = self._since.put(evaluation_id, (settled, len(self._amended)))

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
            self._ended = begun(self._ended, key, call, plain_call)
        else:
            self._ended = over(self._ended, key)
            self._open = begun(self._open, key, call, plain_call)

    def _known(self, event: _StatusEvent) -> tuple[str, ToolCallView]:
        """The call that an event is about; one that nobody asked for is a call too."""
        key = call_key(event.evaluation_id, event.call_id)
        call = self._open.get(key) or self._ended.get(key)
        if call is None:
            self._count_one(event.evaluation_id)
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
        self._superseded = begun(owned(self._superseded), event.evaluation_id, True, itself)
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
_TAKES: dict[type, Callable[[ToolsFolding, Any, Record], None]] = {
    RunStarted: ToolsFolding._run_started,
    MessageAppended: ToolsFolding._message,
    ToolCallStarted: ToolsFolding._started,
    ToolCallCompleted: ToolsFolding._completed,
    ToolCallFailed: ToolsFolding._failed,
    ToolCallInDoubt: ToolsFolding._in_doubt,
    ToolCallDecided: ToolsFolding._decided,
    ToolMessageAmended: ToolsFolding._amend,
    EvaluationSuperseded: ToolsFolding._supersede,
}


def _doubted(call: ToolCallView) -> ToolCallView:
    """In doubt. Somebody may have decided already what became of it."""
    return msgspec.structs.replace(call, status="in_doubt")
