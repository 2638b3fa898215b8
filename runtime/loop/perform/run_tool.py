"""One call of a tool: its start on disk first, then the handler, then what came of it.

A handler that is interrupted leaves its call in doubt, never failed; here is also what becomes
of such a call. Several at once are `runtime.loop.perform.run_tools`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from turnledger.ledger import EvaluationSuperseded, ToolCallInDoubt, ToolCallStarted
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.limits import deadline_provider_payload
from turnledger.runtime.agent.tool_context import ToolContext
from turnledger.runtime.agent.tools.call import Invocation, PreparedCall, call_prepared, prepared
from turnledger.runtime.agent.visibility import VisibilityExpansionRequired
from turnledger.runtime.errors import DeadlineExceededError
from turnledger.runtime.loop.perform.record_result import add_result, record
from turnledger.runtime.session.overlay import Overlay

if TYPE_CHECKING:
    from turnledger.runtime.loop.evaluation import Evaluation

UNKNOWN = (
    "The outcome of this call is unknown: the process that ran it was interrupted. It may or may "
    "not have happened. Find out before you try it again."
)


def doubt(evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
    """Record that these calls were started and that nobody knows how they ended."""
    evaluation.journal.add(
        *(
            ToolCallInDoubt(
                evaluation_id=call.evaluation_id,
                call_id=call.call_id,
                name=call.name,
                attempt=call.attempts,
                reason="it was started, and nothing was heard of it since",
            )
            for call in calls
        )
    )


def settle(evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
    """Record the outcome of calls in doubt: what a person decided, or that it is unknown."""
    for call in calls:
        if call.decision == "completed":
            text = call.decision_text or _json_text(call.decision_value)
            add_result(evaluation, call, text, value=call.decision_value)
        else:
            decided = call.decision == "failed"
            text = (call.decision_text if decided else UNKNOWN) or "The call failed."
            kind = "DecidedFailed" if decided else "OutcomeUnknown"
            add_result(evaluation, call, text, error=(kind, text))


def _json_text(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


# --- one call ------------------------------------------------------------------------


def start(evaluation: Evaluation[Any], call: ToolCallView) -> ToolCallView:
    """Record that a call's handler is about to run; the call as it is then."""
    call = msgspec.structs.replace(call, attempts=call.attempts + 1)
    evaluation.journal.add(
        ToolCallStarted(
            evaluation_id=call.evaluation_id,
            call_id=call.call_id,
            name=call.name,
            attempt=call.attempts,
        )
    )
    return call


def _context(evaluation: Evaluation[Any], call: ToolCallView) -> ToolContext:
    return ToolContext(
        call_id=call.call_id,
        is_resume=call.attempts > 1 or call.number in evaluation.calls_before,
        prompt=evaluation.prompt,
        rendered_prompt=evaluation.rendered,
        adapter=evaluation.adapter,
        session=evaluation.session,
        event_bus=evaluation.bus,
        deadline=evaluation.deadline,
        resources=evaluation.resources.resources if evaluation.resources else None,
    )


def prepared_call(evaluation: Evaluation[Any], call: ToolCallView) -> PreparedCall | Invocation:
    return prepared(evaluation.tools, call.name, call.arguments)


def handled(
    evaluation: Evaluation[Any], call: ToolCallView, ready: PreparedCall, overlay: Overlay
) -> Invocation:
    """Call the handler; what it changes in the session goes to the overlay."""
    with evaluation.session.scope(overlay):
        return call_prepared(ready, _context(evaluation, call))


def refuse(evaluation: Evaluation[Any], call: ToolCallView, refusal: Invocation) -> None:
    """Record a call that can't be made. It is not started, so it is never in doubt."""
    record(evaluation, call, refusal, Overlay(evaluation.journal, call.call_id))


def run_here(evaluation: Evaluation[Any], call: ToolCallView) -> None:
    evaluation.check_limits("tool")
    ready = prepared_call(evaluation, call)
    if isinstance(ready, Invocation):
        refuse(evaluation, call, ready)
        return
    call = start(evaluation, call)
    evaluation.journal.commit()
    overlay = Overlay(evaluation.journal, call.call_id)
    try:
        invocation = handled(evaluation, call, ready, overlay)
    except Exception as error:
        ended_by(evaluation, call, error)
    else:
        record(evaluation, call, invocation, overlay)


def ended_by(evaluation: Evaluation[Any], call: ToolCallView, error: Exception) -> None:
    """What the handler raised to end more than its own call."""
    if isinstance(error, VisibilityExpansionRequired):
        wanted = {path: shown.value for path, shown in error.requested_overrides.items()}
        if not evaluation.progress.superseded:  # by another call of the same turn
            evaluation.journal.add(
                EvaluationSuperseded(
                    evaluation_id=call.evaluation_id, reason=error.reason, overrides=wanted
                )
            )
        raise error
    assert isinstance(error, DeadlineExceededError)
    text = f"Tool {call.name!r} failed: {error}"
    add_result(evaluation, call, text, error=(type(error).__name__, str(error)))
    evaluation.journal.commit()
    payload = deadline_provider_payload(evaluation.deadline)
    raise evaluation.failed(str(error), "tool", payload) from error
