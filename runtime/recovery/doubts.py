"""`decide`: a person's decision about a tool call in doubt, whose outcome nobody recorded.

The decision is a `ToolCallDecided` in the run's own stream, about one attempt of the call; it is
used when the run is recovered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias
from uuid import UUID

from turnledger.ledger import (
    ConcurrentAppendError,
    InvalidInputError,
    Ledger,
    RunClaimedError,
    SliceChange,
    ToolCallDecided,
)
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections import PendingTools, ToolCallView, fold
from turnledger.projections.views.tools import ToolsState
from turnledger.runtime.recovery.approvals import (
    ApprovalRefusedError,
    CallChangedError,
    CallNotFoundError,
    append_decision,
    was_recorded,
)

Outcome: TypeAlias = Literal["completed", "failed", "retry"]


class NotForStepsError(ApprovalRefusedError):
    """A durable step has a value: no text for a model, and no changes of a session."""


def decide(
    ledger: Ledger,
    run_id: RunId,
    call_id: str,
    decision: Outcome,
    *,
    value: Any = None,
    text: str = "",
    changes: Sequence[SliceChange] = (),
    by: str = "",
    at: int | None = None,
    event_id: UUID | None = None,
) -> ToolCallView:
    """Decide the outcome of a call in doubt, or that it is run again.

    Args:
        ledger: Where the run is.
        run_id: The run.
        call_id: A call of it whose outcome is unknown.
        decision: "completed", "failed", or "retry" to run it again.
        value: The result of a completed call.
        text: What the model is told; the reason, if it failed.
        changes: What a completed call changed in the session.
        by: Who decides.
        at: The version of the run that the person saw: CallChangedError if the call changed
            since.
        event_id: The id of the event. With it, the call may be repeated.

    Returns:
        The call, as it was before the decision.

    Raises:
        CallNotFoundError: The run has no such call, or it has ended.
        NotForStepsError: The call is a step, and has neither text nor changes.
        InvalidInputError: The call was never started.
        RunClaimedError: A worker has the run.
    """
    run = ledger.run(run_id).run_id
    shown = _call_at(ledger, run, call_id, at) if at is not None else None

    def decided(call: ToolCallView) -> ToolCallDecided:
        return ToolCallDecided(
            call_id=call_id,
            decision=decision,
            value=value,
            text=text,
            decided_by=by,
            attempt=call.attempts,
            changes=tuple(changes),
        )

    if shown is not None and was_recorded(ledger, run, decided(shown), at or 0, event_id):
        return shown
    while True:
        version = ledger.head(run)
        call = _call_at(ledger, run, call_id, version)
        if shown is not None and _stand(call) != _stand(shown):
            raise CallChangedError(
                f"Call {call_id} of run {run} changed since it was shown: it was "
                f"{_stand(shown)}, and is {_stand(call)} now. Nothing was recorded. Look again: "
                f"turnledger tools {run}",
                run_id=str(run),
                call_id=call_id,
            )
        _check_in_doubt(ledger, run, call)
        if call.is_step and decision == "completed" and (text or changes):
            raise NotForStepsError(
                f"Call {call_id} is a step: it has no text for a model and changes no session. "
                "Give its value as JSON, with --completed.",
                run_id=str(run),
                call_id=call_id,
            )
        shown = call
        try:
            append_decision(ledger, run, decided(call), version, event_id)
            return call
        except ConcurrentAppendError:
            pass  # perhaps only a comment: look at the call again


def _stand(call: ToolCallView) -> str:
    """The status of a call, as far as a decision about it depends on that."""
    status = "in doubt" if call.status == "started" else call.status.replace("_", " ")
    if call.approval in ("approved", "denied", "edited"):
        status += f", {call.approval}"
    decided = f" and decided ({call.lasting_decision})" if call.lasting_decision else ""
    return f"{status} in attempt {call.attempts}{decided}"


def _call_at(ledger: Ledger, run: UUID, call_id: str, version: int) -> ToolCallView:
    """The call with this id at a version of the run."""
    tools = fold(ledger.read(run, until=version), PendingTools())
    found = [call for call in tools.pending() if call.call_id == call_id]
    call = found[-1] if found else tools.get(call_id)
    if call is None:
        raise CallNotFoundError(
            f"Run {run} has no call {call_id}. {_open_in(tools)}", run_id=str(run), call_id=call_id
        )
    return call


def _open_in(tools: ToolsState) -> str:
    known = ", ".join(one.call_id for one in tools.pending()) or "none"
    return f"Calls that have not ended: {known}."


def _check_in_doubt(ledger: Ledger, run: UUID, call: ToolCallView) -> None:
    """Refuse to decide about a call that is not in doubt, or that a worker may be running."""
    if call.status == "pending" and call.takes_approval:
        raise InvalidInputError(
            f"Call {call.call_id!r} of run {run} is not in doubt: it needs approval, and was never "
            "started. Decide with --approve, --deny TEXT or --edit JSON."
        )
    if call.status == "pending":
        raise InvalidInputError(
            f"Call {call.call_id!r} of run {run} is not in doubt but pending: it was never "
            "started, and runs when the run continues."
        )
    tools = fold(ledger.read(run), PendingTools())
    if call.is_over or call.superseded or call.number not in {c.number for c in tools.pending()}:
        over = call.status if call.is_over else "over, as the call that it is in has ended"
        status = "superseded" if call.superseded else over
        raise CallNotFoundError(
            f"Call {call.call_id} of run {run} is not in doubt but {status}. {_open_in(tools)}",
            run_id=str(run),
            call_id=call.call_id,
        )
    worker = ledger.worker_of(run)
    if worker is not None:
        raise RunClaimedError(str(run), worker=worker, epoch=ledger.run(run).epoch)
