"""Tool calls that are not run: in doubt, denied, or waiting for a person.

A call in doubt was started, and interrupted before its outcome was recorded.

`decide` finds them in the journal, in whatever process goes on with the run. First it is
recorded that a call is in doubt. Then its tool's `on_interrupt` says what happens: "retry" runs
it again, "fail" tells the model that the outcome is unknown, and "ask" makes the run wait for a
person's decision. Of the policy that was recorded with the start and the code's own, the more
careful one holds. A decision that a person made goes before the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnledger.ledger import RunWaiting, SliceEventApplied, ToolCallInDoubt
from turnledger.ledger.errors import error_text
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import ToolCallView
from turnledger.runtime.errors import DecisionRequiredError, SessionError
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.decide import policy_of
from turnledger.runtime.loop.perform.record_result import add_result

logger = logger_of("turnledger.tools")
# Recorded words: a replay compares them, so they stay as they are.
INTERRUPTED = "it was started, and nothing was heard of it since"
_UNKNOWN = (
    "The outcome of this call is unknown: {why}. It may or may not have happened. Find out before "
    "you try it again."
)
UNKNOWN = _UNKNOWN.format(why="the process that ran it was interrupted")


def doubt(
    context: EvaluationContext[Any], calls: Sequence[ToolCallView], *, reason: str = INTERRUPTED
) -> None:
    """Record that these calls were started and have no recorded outcome."""
    for call in calls:
        tool = context.tools.get(call.name)
        now = tool.on_interrupt if tool is not None else "fail"
        if call.on_interrupt and call.on_interrupt != now:
            logger.warning(
                "call %s of tool %s was started with on_interrupt %r, the code has %r now: the "
                "more careful one holds",
                call.call_id,
                call.name,
                call.on_interrupt,
                now,
            )
        context.journal.add(
            ToolCallInDoubt(
                evaluation_id=call.evaluation_id,
                call_id=call.call_id,
                name=call.name,
                attempt=call.attempts,
                reason=reason,
            )
        )


def settle(context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
    """Record the outcome of calls: what a person decided, a denial, or that it is unknown."""
    for call in calls:
        is_denied = call.approval == "denied"
        if is_denied and (call.status == "pending" or call.decision is None):
            add_result(context, call, _denied(call), error=("ApprovalDenied", _denied(call)))
        elif call.decision == "completed":
            text = call.decision_text or _json_text(call.decision_value)
            changes = _changes(context, call)
            add_result(context, call, text, value=call.decision_value, first=changes)
        else:
            decided = call.decision == "failed"
            text = (call.decision_text if decided else _unknown(call)) or "The call failed."
            kind = "DecidedFailed" if decided else "OutcomeUnknown"
            add_result(context, call, text, error=(kind, text))


def _denied(call: ToolCallView) -> str:
    """What the model is told of a denied call; an attempt before it may have happened."""
    text = call.approval_text or "A person denied this call: it was not run."
    return text if call.status == "pending" else f"{text}\n\n{_unknown(call)}"


def _unknown(call: ToolCallView) -> str:
    return UNKNOWN if call.doubt in ("", INTERRUPTED) else _UNKNOWN.format(why=call.doubt)


def _changes(context: EvaluationContext[Any], call: ToolCallView) -> list[SliceEventApplied]:
    """What a person said that the call changed in the session, as the call's own events.

    PromptEvaluationError if one does not fit the session's types or has no reducer: a fold counts
    such an event and goes on without it, and the decision would be carried out in part.
    """
    journal, changes = context.journal, list[SliceEventApplied]()
    known = journal.known
    for number, change in enumerate(call.decision_changes, start=1):
        changes.append(
            SliceEventApplied(
                slice=change.slice,
                event_type=change.event_type,
                operation=change.operation,
                payload=change.payload,
                call_id=call.call_id,
            )
        )
        missed = known.run.slices.unapplied
        try:
            _, known = journal.folded_on(known, [journal.prepare(changes[-1])])
            if known.run.slices.unapplied > missed:
                raise SessionError("the session has no such reducer, or the payload does not fit")
        except Exception as error:
            why = (
                f"Change {number} of the decision about call {call.call_id!r} can't be applied to "
                f"the slice {change.slice}: {error_text(error)}. Nothing of it was applied. Decide "
                f"again: turnledger resolve {journal.run_id} {call.call_id} --completed ..."
            )
            raise context.failed(why, "tool") from error
    return changes


def _json_text(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def wait_for_decision(context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
    """Record that the run waits for a person to decide about these calls, and stop.

    Returns if a person decided about one just now: the run goes on with that.
    """
    journal, waits = context.journal, list[str]()
    ids = tuple(call.call_id for call in calls)
    policies = {tool.name: tool.on_interrupt for tool in context.tools}
    approvals = tuple(
        call.call_id
        for call in calls
        if call.status == "pending" or policy_of(call, policies) == "retry"
    )
    summary = journal.state.summary
    if summary.status != "waiting" or summary.waiting_for != ids:
        waits = journal.add(RunWaiting(reason=_reason(len(ids), len(approvals)), call_ids=ids))
    if not journal.commit_unless_decided(waits):
        return
    raise DecisionRequiredError(str(journal.run_id), ids, approvals=approvals)


def _reason(calls: int, approvals: int) -> str:
    # Recorded words: a replay compares them, so they stay as they are.
    if not approvals:
        return "nobody knows how these calls ended"
    if approvals == calls:
        return "these calls need a person's approval"
    return "some of these calls need a person's approval, and nobody knows how the others ended"
