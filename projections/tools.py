"""The tool calls of a run: what the assistant asked for, and what became of each.

A call is pending until its handler starts, and in doubt if that was the last that was
heard of it. A tool's message alone closes its call, with or without a status event. The
calls of an evaluation that was superseded wait for nobody.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, final

import msgspec

from ledger import (
    EvaluationSuperseded,
    MessageAppended,
    Record,
    RunStarted,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    ToolMessageAmended,
)
from projections.containers import PersistentMap
from projections.persistent import HashedMap, UnderWay, begun, over
from projections.projection import Projection, as_json
from projections.running_hash import combine

CallStatus = Literal["pending", "started", "completed", "failed", "in_doubt"]


class ToolCallView(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call: who asked for what, how often it was tried, and its outcome."""

    call_id: str
    name: str
    arguments: str = "{}"
    evaluation_id: str = ""
    turn: int = 0
    status: CallStatus = "pending"
    attempts: int = 0
    asked_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: str | None = None
    value: Any = None
    error_type: str | None = None
    error_message: str | None = None
    decision: str | None = None
    decision_value: Any = None
    decision_text: str = ""
    decided_by: str = ""
    superseded: bool = False


@final
class ToolsState(msgspec.Struct, frozen=True):
    """The calls by evaluation and call id, in the order in which they were asked for."""

    calls: HashedMap[ToolCallView] = HashedMap()
    # Which calls are not over, and whose evaluation was not superseded.
    open_keys: UnderWay[bool] = {}
    superseded: PersistentMap[bool] = PersistentMap()
    # Which call a tool message answers, for when it is amended.
    answers: PersistentMap[str] = PersistentMap()

    def pending(self) -> tuple[ToolCallView, ...]:
        """The calls that somebody still has to see to: not completed, failed or superseded."""
        found = (self.calls.get(key) for key in self.open_keys)
        return tuple(call for call in found if call is not None)

    def get(self, call_id: str, evaluation_id: str | None = None) -> ToolCallView | None:
        """A call by its id, the latest if several evaluations used it."""
        if evaluation_id is not None:
            return self.calls.get(_key(evaluation_id, call_id))
        found = [call for call in self.calls.values() if call.call_id == call_id]
        return found[-1] if found else None


def _key(evaluation_id: str, call_id: str) -> str:
    return f"{evaluation_id}\n{call_id}"


class PendingTools(Projection[ToolsState]):
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

    def apply(self, state: ToolsState, record: Record) -> ToolsState:
        event = record.event
        if isinstance(event, MessageAppended):
            return self._message(state, event, record)
        if isinstance(event, RunStarted):
            return self._begin(state, event)
        if isinstance(event, ToolCallDecided):
            return self._decide(state, event)
        if isinstance(event, ToolMessageAmended):
            return self._amend(state, event)
        if isinstance(event, EvaluationSuperseded):
            return self._supersede(state, event.evaluation_id)
        assert isinstance(
            event, ToolCallStarted | ToolCallCompleted | ToolCallFailed | ToolCallInDoubt
        )
        key = _key(event.evaluation_id, event.call_id)
        call = state.calls.get(key) or ToolCallView(
            event.call_id,
            event.name,
            evaluation_id=event.evaluation_id,
            superseded=bool(state.superseded.get(event.evaluation_id)),
        )
        return _put(state, key, _after(call, event, record))

    def _message(self, state: ToolsState, event: MessageAppended, record: Record) -> ToolsState:
        message = event.message
        for asked in message.tool_calls if message.role == "assistant" else ():
            key = _key(message.evaluation_id, asked.call_id)
            known = state.calls.get(key)
            # Some providers use an id again in a later turn: that is another call.
            if known is None or (known.result is not None and known.turn < message.turn):
                call = ToolCallView(
                    asked.call_id,
                    asked.name,
                    asked.arguments,
                    message.evaluation_id,
                    message.turn,
                    asked_at=record.recorded_at,
                    superseded=bool(state.superseded.get(message.evaluation_id)),
                )
                state = _put(state, key, call)
        if message.role != "tool" or message.tool_call_id is None:
            return state
        key = _key(message.evaluation_id, message.tool_call_id)
        known = state.calls.get(key)
        if known is None or known.result is not None:
            return state
        status: CallStatus = known.status
        if status not in ("completed", "failed"):
            status = "failed" if message.is_error else "completed"
        return _put(
            state,
            key,
            msgspec.structs.replace(
                known,
                status=status,
                result=message.content,
                ended_at=known.ended_at or record.recorded_at,
            ),
            state.answers.put(message.message_id.hex, key),
        )

    def _begin(self, state: ToolsState, event: RunStarted) -> ToolsState:
        if event.kind != "fork":
            return self.initial()
        for key in state.open_keys:
            call = state.calls.get(key)
            if call is not None and call.status == "started":
                state = _put(state, key, _doubted(call))
        return state

    def _amend(self, state: ToolsState, event: ToolMessageAmended) -> ToolsState:
        key = state.answers.get(event.message_id.hex)
        call = state.calls.get(key) if key is not None else None
        if key is None or call is None:
            return state
        return _put(state, key, msgspec.structs.replace(call, result=event.content))

    def _supersede(self, state: ToolsState, evaluation_id: str) -> ToolsState:
        superseded = state.superseded.put(evaluation_id, True)
        state = msgspec.structs.replace(state, superseded=superseded)
        for key in state.open_keys:
            call = state.calls.get(key)
            if call is not None and call.evaluation_id == evaluation_id:
                state = _put(state, key, msgspec.structs.replace(call, superseded=True))
        return state

    def _decide(self, state: ToolsState, event: ToolCallDecided) -> ToolsState:
        for key in reversed(tuple(state.open_keys)):
            call = state.calls.get(key)
            if call is not None and call.call_id == event.call_id:
                decided = msgspec.structs.replace(
                    call,
                    decision=event.decision,
                    decision_value=event.value,
                    decision_text=event.text,
                    decided_by=event.decided_by,
                )
                return _put(state, key, decided)
        return state

    def to_json(self, state: ToolsState) -> Any:
        return [{**as_json(call), "status": call.status} for call in state.calls.values()]

    def digest(self, state: ToolsState) -> bytes:
        return combine("tools", state.calls.digest)


def _put(
    state: ToolsState, key: str, call: ToolCallView, answers: PersistentMap[str] | None = None
) -> ToolsState:
    is_open = call.status not in ("completed", "failed") and not call.superseded
    keys = state.open_keys
    if not is_open:
        keys = over(keys, key)
    elif key not in keys:
        keys = begun(keys, key, True)
    return ToolsState(state.calls.put(key, call), keys, state.superseded, answers or state.answers)


def _doubted(call: ToolCallView) -> ToolCallView:
    """In doubt. What a person decided was about an earlier doubt."""
    return msgspec.structs.replace(
        call,
        status="in_doubt",
        decision=None,
        decision_value=None,
        decision_text="",
        decided_by="",
    )


def _after(
    call: ToolCallView,
    event: ToolCallStarted | ToolCallCompleted | ToolCallFailed | ToolCallInDoubt,
    record: Record,
) -> ToolCallView:
    match event:
        case ToolCallStarted():
            return msgspec.structs.replace(
                call, status="started", attempts=event.attempt, started_at=record.recorded_at
            )
        case ToolCallCompleted():
            return msgspec.structs.replace(
                call, status="completed", value=event.value, ended_at=record.recorded_at
            )
        case ToolCallFailed():
            return msgspec.structs.replace(
                call,
                status="failed",
                error_type=event.error_type,
                error_message=event.error_message,
                ended_at=record.recorded_at,
            )
        case ToolCallInDoubt():
            return _doubted(call)
