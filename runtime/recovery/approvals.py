"""`approve`, `deny` and `edit`: a person's decision about a tool call that needs approval.

The decision is an `ApprovalDecided` in the run's own stream; the run goes on with it when it is
recovered. It is for the call's next attempt, and in this run only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

import msgspec

from turnledger.ledger import (
    ApprovalDecided,
    ConcurrentAppendError,
    Draft,
    EvaluationStarted,
    Event,
    InvalidInputError,
    Ledger,
    RunClaimedError,
    TurnledgerError,
)
from turnledger.ledger.errors import short_repr
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections import PendingTools, ToolCallView, fold
from turnledger.runtime.agent.schema.values import read_json, to_text
from turnledger.runtime.errors import SchemaError


class ApprovalRefusedError(InvalidInputError):
    """A decision about a call can't be recorded; nothing was. Has the run and the call."""

    def __init__(self, message: str, *, run_id: str, call_id: str) -> None:
        self.run_id, self.call_id = run_id, call_id
        super().__init__(message)


class CallNotFoundError(ApprovalRefusedError, LookupError):
    """The run has no such call that has not ended."""


class CallChangedError(ApprovalRefusedError):
    """The call is not what it was when it was shown."""


class InvalidEditError(ApprovalRefusedError):
    """The edited arguments do not fit the schema that the model was sent."""


def approve(
    ledger: Ledger,
    run_id: RunId,
    call_id: str,
    *,
    by: str = "",
    at: int | None = None,
    event_id: UUID | None = None,
) -> ToolCallView:
    """Approve the next attempt of a call, with the arguments that it has now.

    Args:
        ledger: Where the run is.
        run_id: The run.
        call_id: A call of it that needs approval.
        by: Who decides.
        at: The version of the run that the person saw: CallChangedError if the call changed
            since.
        event_id: The id of the event. With it and `at`, the call may be repeated.

    Returns:
        The call, as it was before the decision.

    Raises:
        CallNotFoundError: The run has no such call that has not ended.
        ApprovalRefusedError: The call does not wait for approval.
        RunClaimedError: A worker has the run.
    """
    return _decide(ledger, run_id, call_id, _Decision("approved", by=by), at, event_id)


def deny(
    ledger: Ledger,
    run_id: RunId,
    call_id: str,
    text: str,
    *,
    by: str = "",
    at: int | None = None,
    event_id: UUID | None = None,
) -> ToolCallView:
    """Deny a call: it fails with this text for the model, and never runs.

    Args:
        ledger: Where the run is.
        run_id: The run.
        call_id: A call of it that needs approval.
        text: What the model is told.
        by: Who decides.
        at: As for `approve`, whose errors it raises too.
        event_id: As for `approve`.

    Returns:
        The call, as it was before the decision.
    """
    made = _Decision("denied", text=text, by=by)
    return _decide(ledger, run_id, call_id, made, at, event_id)


def edit(
    ledger: Ledger,
    run_id: RunId,
    call_id: str,
    arguments: Mapping[str, Any] | str,
    *,
    by: str = "",
    at: int | None = None,
    event_id: UUID | None = None,
) -> ToolCallView:
    """Approve a call with other arguments. The model is told which ones, with the result.

    They are checked against the schema that the model was sent: InvalidEditError if they do not
    fit, or if the run has no record of that schema.

    Args:
        ledger: Where the run is.
        run_id: The run.
        call_id: A call of it that needs approval.
        arguments: All arguments, as a mapping or as JSON text.
        by: Who decides.
        at: As for `approve`, whose errors it raises too.
        event_id: As for `approve`.

    Returns:
        The call, as it was before the decision.
    """
    try:
        data = read_json(arguments) if isinstance(arguments, str) else arguments
        if not isinstance(data, Mapping):
            raise SchemaError(f"expected a JSON object, got {short_repr(data)}")
        text = to_text(data)
    except SchemaError as error:
        raise InvalidEditError(
            f"Invalid arguments for call {call_id!r}: {error}.",
            run_id=str(run_id),
            call_id=call_id,
        ) from None
    made = _Decision("edited", arguments=text, by=by)
    return _decide(ledger, run_id, call_id, made, at, event_id)


class _Decision(msgspec.Struct, frozen=True):
    """What a person decided."""

    decision: Literal["approved", "denied", "edited"]
    text: str = ""
    arguments: str = ""
    by: str = ""

    def about(self, call: ToolCallView) -> ApprovalDecided:
        """The event that records it."""
        return ApprovalDecided(
            call_id=call.call_id,
            decision=self.decision,
            attempt=call.attempts,
            text=self.text,
            arguments=self.arguments,
            decided_by=self.by,
        )


def _decide(
    ledger: Ledger,
    run_id: RunId,
    call_id: str,
    made: _Decision,
    at: int | None,
    event_id: UUID | None,
) -> ToolCallView:
    run = ledger.run(run_id).run_id
    shown = _call_at(ledger, run, call_id, at) if at is not None else None
    if shown is not None and was_recorded(ledger, run, made.about(shown), at or 0, event_id):
        return shown
    while True:
        version = ledger.head(run)
        call = _call_at(ledger, run, call_id, version)
        if shown is not None and _stand(call) != _stand(shown):
            raise CallChangedError(
                f"Call {call_id!r} of run {run} changed since it was shown: it was "
                f"{_stand(shown)}, and is {_stand(call)} now. Nothing was recorded. Look again: "
                f"turnledger pending {run}",
                run_id=str(run),
                call_id=call_id,
            )
        _check_takes_approval(ledger, run, call)
        if made.decision == "edited":
            _check_arguments(ledger, run, call, made.arguments)
        shown = call
        try:
            append_decision(ledger, run, made.about(call), version, event_id)
            return call
        except ConcurrentAppendError:
            pass  # perhaps only a comment: look at the call again


def was_recorded(
    ledger: Ledger, run: UUID, decided: Event, after: int, event_id: UUID | None
) -> bool:
    """Whether this decision was recorded before, under the same id: it is repeated.

    Args:
        ledger: Where the run is.
        run: The run.
        decided: The decision.
        after: The version that the person saw.
        event_id: Its id; without one it is never a repetition.

    Raises:
        EventIdConflictError: Another event has the id.
    """
    if event_id is None or all(one.event_id != event_id for one in ledger.read(run, after)):
        return False
    return ledger.append(run, Draft(decided, event_id), after).duplicate


def append_decision(
    ledger: Ledger, run: UUID, decided: Event, version: int, event_id: UUID | None
) -> None:
    """Append a decision to a run at this version, under an id if there is one."""
    ledger.append(run, decided if event_id is None else Draft(decided, event_id), version)


def _call_at(ledger: Ledger, run: UUID, call_id: str, version: int) -> ToolCallView:
    """The call with this id at a version of the run, the open one if it was used several times."""
    tools = fold(ledger.read(run, until=version), PendingTools())
    found = [call for call in tools.pending() if call.call_id == call_id]
    call = found[-1] if found else tools.get(call_id)
    if call is None or call.is_over or call.superseded:
        waiting = ", ".join(one.call_id for one in tools.pending() if one.awaits_approval)
        state = "has no call" if call is None else "has no open call"
        raise CallNotFoundError(
            f"Run {run} {state} {call_id!r}. Calls that need approval: {waiting or 'none'}.",
            run_id=str(run),
            call_id=call_id,
        )
    return call


def _stand(call: ToolCallView) -> str:
    """The status of a call, as far as a decision about its approval depends on that."""
    approval = call.approval.replace("_", " ") or "without a word about approval"
    arguments = f" with the arguments {call.given_arguments}" if call.edited_arguments else ""
    return f"{call.status.replace('_', ' ')} in attempt {call.attempts}, {approval}{arguments}"


def _check_takes_approval(ledger: Ledger, run: UUID, call: ToolCallView) -> None:
    """ApprovalRefusedError if the call does not wait for approval; RunClaimedError if at work."""
    if not call.takes_approval:
        if call.status in ("started", "in_doubt"):
            why = (
                "is in doubt: it was started, and its outcome is unknown. Find out, then decide "
                "with --completed JSON, --failed TEXT or --retry"
            )
        else:
            why = "needs no approval: it runs when the run continues"
        raise ApprovalRefusedError(
            f"Call {call.call_id!r} of run {run} {why}.", run_id=str(run), call_id=call.call_id
        )
    status = ledger.run(run).status
    if status in ("abandoned", "parked"):
        raise ApprovalRefusedError(
            f"Run {run} is {status}: it is not recovered any more, and call {call.call_id!r} never "
            f"runs. Fork it, and decide in the fork: turnledger fork {run} --help",
            run_id=str(run),
            call_id=call.call_id,
        )
    worker = ledger.worker_of(run)
    if worker is not None:
        raise RunClaimedError(str(run), worker=worker, epoch=ledger.run(run).epoch)


# --- edited arguments ----------------------------------------------------------------


def _check_arguments(ledger: Ledger, run: UUID, call: ToolCallView, arguments: str) -> None:
    """InvalidEditError if they do not fit the schema that is recorded for the call's tool."""
    from jsonschema import Draft202012Validator  # slow to import

    schema = _recorded_schema(ledger, run, call)
    if schema is None:
        raise InvalidEditError(
            f"Arguments of call {call.call_id!r} can't be edited: run {run} has no record of the "
            f"schema of tool {call.name!r}, to check them against. Approve the call, or deny it.",
            run_id=str(run),
            call_id=call.call_id,
        )
    found = Draft202012Validator(schema).iter_errors(msgspec.json.decode(arguments))
    wrong = [f"{error.json_path}: {error.message}" for error in found]
    if wrong:
        raise InvalidEditError(
            f"Invalid arguments for call {call.call_id!r} of tool {call.name!r}: "
            f"{'; '.join(sorted(wrong))}. Expected what its schema says: "
            f"{msgspec.json.encode(schema).decode()}",
            run_id=str(run),
            call_id=call.call_id,
        )


def _recorded_schema(ledger: Ledger, run: UUID, call: ToolCallView) -> Any:
    """The JSON schema of the call's tool, as its evaluation began with; None if unknown."""
    spec = ""
    for record in ledger.read(run):
        event = record.event if record.tag == EvaluationStarted.tag else None
        if isinstance(event, EvaluationStarted) and event.evaluation_id == call.evaluation_id:
            spec = next((tool.spec for tool in event.tools if tool.name == call.name), "")
    if not spec:
        return None
    try:
        return msgspec.json.decode(ledger.blob(spec)).get("parameters")
    except (TurnledgerError, ValueError):
        return None  # its blob is missing or damaged
