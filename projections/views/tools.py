"""View of tool calls: requested, started, completed, failed, in doubt, decided.

A call is pending until its handler starts, and in doubt if its start is the last that was
recorded. A tool message alone closes its call, with or without a status event. The calls of a
superseded evaluation are not pending. With the assistant's message of another turn, ended
calls are settled: the same id then means another call.

A step is a call that no message asks for, so its outcome settles it. A model call as a step has
no `ToolCallStarted`: its request and its reply are what begins and ends it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    ApprovalRequested,
    EvaluationStarted,
    EvaluationSuperseded,
    InnerMessage,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunResumed,
    RunStarted,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallRecord,
    ToolCallStarted,
    ToolMessageAmended,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import combine
from turnledger.projections.persistent.containers import ListBuilder
from turnledger.projections.persistent.hashed import (
    FEW,
    open_digest,
    own_copy,
    with_item,
    without_item,
)
from turnledger.projections.persistent.lazy_json import lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, Takes, as_json
from turnledger.projections.views.tool_calls import (
    ApprovalState,
    CallStatus,
    ToolCallView,
    ToolsState,
    call_key,
    itself,
    plain_call,
)

__all__ = ["CallStatus", "PendingTools", "ToolCallView", "ToolsState"]


@explain_methods(skip=("apply", "apply_all", "begin"))
class PendingTools(BulkProjection[ToolsState]):
    """Folds tool calls from messages and status events."""

    name = "tools"
    reads = (
        RunStarted,
        RunResumed,
        EvaluationStarted,
        MessageAppended,
        ModelCalled,
        ModelReplied,
        ModelCallFailed,
        ToolCallStarted,
        ToolCallCompleted,
        ToolCallFailed,
        ToolCallInDoubt,
        ToolCallDecided,
        ApprovalRequested,
        ApprovalDecided,
        ToolMessageAmended,
        EvaluationSuperseded,
    )

    def initial(self) -> ToolsState:
        return ToolsState()

    def begin(self, state: ToolsState) -> _Folding:
        return _Folding(state)

    def to_json(self, state: ToolsState) -> Any:
        return plain_json(self.lazy_json(state))

    def lazy_json(self, state: ToolsState) -> Any:
        return lazy_list(state.calls, _call_json)

    def digest(self, state: ToolsState) -> bytes:
        return combine(
            "tools",
            state.settled.digest,
            open_digest(state.open, plain_call),
            open_digest(state.ended, plain_call),
            open_digest(state.superseded, itself),
            state.amended.digest,
            b"%d" % len(state.calls),
            state.last_turn.encode(),
        )


def _call_json(call: ToolCallView) -> Any:
    return {**as_json(call), "status": call.status}


class _Folding(Folding[ToolsState]):
    """Tool calls while records are folded."""

    def __init__(self, state: ToolsState) -> None:
        self._settled = state.settled
        self._newly: list[ToolCallView] = []
        self._open = own_copy(state.open)
        self._ended = own_copy(state.ended)
        self._superseded = state.superseded
        self._amended = state.amended
        self._texts = state.texts
        self._last_turn = state.last_turn
        self._calls = ListBuilder(state.calls)
        self._first = state.first
        # The evaluation of the last call that was counted.
        self._counted: str | None = None

    def done(self) -> ToolsState:
        return ToolsState(
            self._settled.extend(self._newly),
            self._open,
            self._ended,
            self._superseded,
            self._amended,
            self._texts,
            self._last_turn,
            self._calls.done(),
            self._first,
        )

    # --- messages ---

    def _message(self, event: MessageAppended, record: Record) -> None:
        message = event.message
        if message.role == "assistant":
            this_turn = f"{message.evaluation_id}\n{message.turn}"
            if this_turn != self._last_turn:
                self._newly.extend(self._ended.values())
                self._ended, self._last_turn = {}, this_turn
            for asked in message.tool_calls:
                self._ask(message, asked, record)
        elif message.role == "tool" and message.tool_call_id is not None:
            self._answer(message, record)

    def _ask(self, message: InnerMessage, asked: ToolCallRecord, record: Record) -> None:
        key = f"{message.evaluation_id}\n{asked.call_id}"
        if key in self._open or key in self._ended:
            return
        call = ToolCallView(
            asked.call_id,
            asked.name,
            asked.arguments,
            message.evaluation_id,
            message.turn,
            len(self._calls) + 1,
            asked_at=record.recorded_at,
            superseded=message.evaluation_id in self._superseded,
        )
        self._count(call)
        self._open = with_item(self._open, key, call, plain_call)

    def _count(self, call: ToolCallView) -> None:
        self._calls.append(call)
        if call.evaluation_id != self._counted:
            self._counted = call.evaluation_id
            if self._first.get(call.evaluation_id) is None:
                self._first = self._first.put(call.evaluation_id, call.number)

    def _answer(self, message: InnerMessage, record: Record) -> None:
        key = f"{message.evaluation_id}\n{message.tool_call_id}"
        call = self._open.get(key) or self._ended.get(key)
        if call is None or call.message_id is not None:
            return
        status: CallStatus = call.status
        if status not in _OVER:
            status = "failed" if message.is_error else "completed"
        answered = msgspec.structs.replace(
            call,
            status=status,
            message_id=message.message_id,
            result=message.content,
            # None unless it was amended before.
            amended=self._texts.get(str(message.message_id)) if self._texts.size else None,
            ended_at=call.ended_at or record.recorded_at,
        )
        self._put(key, answered)

    def _amend(self, event: ToolMessageAmended, record: Record) -> None:
        self._amended = self._amended.append((event.message_id, event.content))
        self._texts = self._texts.put(str(event.message_id), event.content)
        # Nearly always it is the last answer that is amended.
        for call in reversed(self._calls):
            if call.message_id == event.message_id:
                self._show_amended(msgspec.structs.replace(call, amended=event.content))
                return

    def _show_amended(self, call: ToolCallView) -> None:
        """Replace a call by one with its amendment, which is not part of the call's digest."""
        key = call_key(call.evaluation_id, call.call_id)
        known = self._open.get(key) or self._ended.get(key)
        if known is not None and known.number == call.number:
            self._put(key, call)
        else:
            self._calls.replace(call.number - 1, call)

    # --- status ---

    def _put(self, key: str, call: ToolCallView) -> None:
        self._calls.replace(call.number - 1, call)
        is_over = call.status in _OVER
        if is_over and call.is_step:
            # No message can follow: nothing changes it any more.
            self._open = without_item(self._open, key)
            self._newly.append(call)
            return
        to, of = (self._ended, self._open) if is_over else (self._open, self._ended)
        if type(to) is dict and type(of) is dict and len(to) < FEW:  # nearly always
            of.pop(key, None)
            to[key] = call
        elif is_over:
            self._open = without_item(of, key)
            self._ended = with_item(to, key, call, plain_call)
        else:
            self._ended = without_item(of, key)
            self._open = with_item(to, key, call, plain_call)

    def _known(self, event: _StatusEvent) -> tuple[str, ToolCallView]:
        """The call that an event is about; without a message that asked for it, a new one."""
        key = f"{event.evaluation_id}\n{event.call_id}"
        call = self._open.get(key) or self._ended.get(key)
        if call is None:
            call = ToolCallView(
                event.call_id,
                getattr(event, "name", ""),  # a model's reply has none
                evaluation_id=event.evaluation_id,
                number=len(self._calls) + 1,
                superseded=event.evaluation_id in self._superseded,
            )
            self._count(call)
        return key, call

    def _started(self, event: ToolCallStarted, record: Record) -> None:
        key, call = self._known(event)
        begun = _begun(call, event, record)
        if event.arguments or event.digest or call.digest:
            # A step's start has its arguments, if they are short; any other call has its message's.
            is_given = event.arguments or event.digest
            arguments = event.arguments if is_given else begun.arguments
            begun = msgspec.structs.replace(begun, arguments=arguments, digest=event.digest)
        self._put(key, begun)

    def _model_called(self, event: ModelCalled, record: Record) -> None:
        if event.call_id:
            key, call = self._known(event)
            begun = _begun(call, event, record)
            digest = event.request_digest
            asked = msgspec.structs.replace(begun, kind="model", arguments="", digest=digest)
            self._put(key, asked)

    def _completed(self, event: ToolCallCompleted | ModelReplied, record: Record) -> None:
        key, call = self._known(event)
        completed = msgspec.structs.replace(
            call, status="completed", value=event.value, ended_at=record.recorded_at
        )
        if type(event) is ToolCallCompleted and event.unrecordable:
            completed = msgspec.structs.replace(completed, unrecordable=event.unrecordable)
        self._put(key, completed)

    def _model_replied(self, event: ModelReplied, record: Record) -> None:
        if event.call_id:
            self._completed(event, record)

    def _model_failed(self, event: ModelCallFailed, record: Record) -> None:
        """The last failure is what the step's caller got; those before it were tried again."""
        if event.call_id and event.final:
            key, call = self._known(event)
            failed = msgspec.structs.replace(
                call,
                status="failed",
                value=event.value,
                error_type=event.error_type,
                error_message=event.error_message,
                ended_at=record.recorded_at,
            )
            self._put(key, failed)

    def _failed(self, event: ToolCallFailed, record: Record) -> None:
        key, call = self._known(event)
        failed = msgspec.structs.replace(
            call,
            status="failed",
            error_type=event.error_type,
            error_message=event.error_message,
            traceback=event.traceback,
            ended_at=record.recorded_at,
        )
        self._put(key, failed)

    def _in_doubt(self, event: ToolCallInDoubt, record: Record) -> None:
        key, call = self._known(event)
        self._put(key, msgspec.structs.replace(_doubted(call), doubt=event.reason))

    def _decided(self, event: ToolCallDecided, record: Record) -> None:
        waiting = [
            (key, call)
            for key, call in self._open.items()
            if call.call_id == event.call_id and not call.superseded
        ]
        if waiting:
            key, call = waiting[-1]
            if event.attempt not in (0, call.attempts):
                return  # about another attempt
            is_decided = call.lasting_decision is not None or call.approval == "denied"
            if event.until_resumed and is_decided:
                return  # decided since the consent was given
            decided = msgspec.structs.replace(
                call,
                decision=event.decision,
                decision_value=event.value,
                decision_text=event.text,
                decided_by=event.decided_by,
                decision_changes=event.changes,
                until_resumed=event.until_resumed,
            )
            self._put(key, decided)

    def _approval_requested(self, event: ApprovalRequested, record: Record) -> None:
        key = call_key(event.evaluation_id, event.call_id)
        call = self._open.get(key)
        if call is not None and not call.approval:  # what is recorded first holds
            needed: ApprovalState = "needed" if event.needed else "not_needed"
            self._put(key, msgspec.structs.replace(call, approval=needed))

    def _approval_decided(self, event: ApprovalDecided, record: Record) -> None:
        """A decision about the call's next attempt; the last one before its start counts."""
        waiting = [
            (key, call)
            for key, call in self._open.items()
            if call.call_id == event.call_id and not call.superseded
        ]
        if not waiting:
            return
        key, call = waiting[-1]
        if not call.takes_approval or event.attempt != call.attempts:
            return
        if event.decision == "edited" and not event.arguments:
            return  # the call would run with the model's own
        is_denied = event.decision == "denied"
        # Denied, it does not run: neither with arguments given before, nor by an earlier retry.
        undecided = _UNDECIDED if is_denied and call.decision == "retry" else {}
        decided = msgspec.structs.replace(
            _unapproved(call, keep_edit=not is_denied),
            approval=event.decision,
            approval_text=event.text,
            approval_by=event.decided_by,
            **undecided,
        )
        if event.decision == "edited":
            decided = msgspec.structs.replace(decided, edited_arguments=event.arguments)
        self._put(key, decided)

    def _resumed(self, event: RunResumed, record: Record) -> None:
        for key, call in list(self._open.items()):
            if call.until_resumed:
                self._put(key, msgspec.structs.replace(call, **_UNDECIDED))

    def _supersede(self, event: EvaluationSuperseded, record: Record) -> None:
        self._superseded = with_item(own_copy(self._superseded), event.evaluation_id, True, itself)
        for key, call in list(self._open.items()):
            if call.evaluation_id == event.evaluation_id:
                self._put(key, msgspec.structs.replace(call, superseded=True))

    def _evaluation_started(self, event: EvaluationStarted, record: Record) -> None:
        """Hand the open calls of an evaluation to the one that was accepted in its place."""
        if not event.accepted:
            return
        for key, call in list(self._open.items()):
            if call.evaluation_id == event.after and not call.superseded and not call.is_step:
                self._open = without_item(self._open, key)
                moved = msgspec.structs.replace(call, evaluation_id=event.evaluation_id)
                self._put(call_key(event.evaluation_id, call.call_id), moved)
                first = min(call.number, self._first.get(event.evaluation_id) or call.number)
                self._first = self._first.put(event.evaluation_id, first)

    def _run_started(self, event: RunStarted, record: Record) -> None:
        if not event.keeps_conversation:
            self.__init__(ToolsState())  # type: ignore[misc]
            return
        for key, call in list(self._open.items()):
            if call.superseded:
                continue
            if call.approval in _DECIDED:
                call = _unapproved(call, keep_edit=False)  # it was given to the parent
                self._put(key, call)
            if call.status == "started":
                self._put(key, _doubted(call))

    takes: ClassVar[Takes] = {
        RunStarted: _run_started,
        RunResumed: _resumed,
        EvaluationStarted: _evaluation_started,
        MessageAppended: _message,
        ModelCalled: _model_called,
        ModelReplied: _model_replied,
        ModelCallFailed: _model_failed,
        ToolCallStarted: _started,
        ToolCallCompleted: _completed,
        ToolCallFailed: _failed,
        ToolCallInDoubt: _in_doubt,
        ToolCallDecided: _decided,
        ApprovalRequested: _approval_requested,
        ApprovalDecided: _approval_decided,
        ToolMessageAmended: _amend,
        EvaluationSuperseded: _supersede,
    }


_UNDECIDED: dict[str, Any] = {
    "decision": None,
    "decision_value": None,
    "decision_text": "",
    "decided_by": "",
    "decision_changes": (),
    "until_resumed": False,
}
_OVER = ("completed", "failed")
# Approvals that a person decided about, and that no attempt has used yet.
_DECIDED = ("approved", "denied", "edited")
_StatusEvent = (
    ToolCallStarted
    | ToolCallCompleted
    | ToolCallFailed
    | ToolCallInDoubt
    | ModelCalled
    | ModelReplied
    | ModelCallFailed
)


def _begun(
    call: ToolCallView, event: ToolCallStarted | ModelCalled, record: Record
) -> ToolCallView:
    """The call as an attempt begins.

    A decision was about an earlier attempt, and an approval is used up by this one.

    Args:
        call: The call.
        event: The start.
        record: Its record.
    """
    if call.status != "pending" or call.decision is not None or call.approval:
        call = msgspec.structs.replace(_unapproved(call), doubt="", **_UNDECIDED)
    return msgspec.structs.replace(
        call,
        parent=event.parent,
        status="started",
        attempts=event.attempt,
        started_at=record.recorded_at,
        on_interrupt=event.on_interrupt,
    )


def _doubted(call: ToolCallView) -> ToolCallView:
    """The call in doubt. It may have a decision already."""
    return msgspec.structs.replace(call, status="in_doubt")


def _unapproved(call: ToolCallView, *, keep_edit: bool = True) -> ToolCallView:
    """The call without a decision about its approval: its next attempt needs another one.

    Args:
        call: The call.
        keep_edit: Whether arguments stay that a person gave it. An attempt that began had them.
    """
    if call.approval not in _DECIDED:
        return call
    keeps = keep_edit or call.approval != "edited"
    return msgspec.structs.replace(
        call,
        approval="needed",
        approval_text="",
        approval_by="",
        edited_arguments=call.edited_arguments if keeps else "",
    )
