"""One tool call: its start is on disk before the handler is called, and its result after.

A handler that is interrupted leaves its call in doubt, never failed: what becomes of it is
`runtime.loop.perform.tool_in_doubt`. Several at once are `runtime.loop.perform.run_tools`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnledger.ledger import EvaluationSuperseded, ToolCallStarted
from turnledger.ledger.errors import error_message, error_text
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.limits import deadline_provider_payload
from turnledger.runtime.agent.tool_context import ToolContext
from turnledger.runtime.agent.tools.call import (
    Invocation,
    PreparedCall,
    call_prepared,
    failed,
    prepared,
)
from turnledger.runtime.agent.tools.redacted_arguments import (
    refused_as_redacted,
    warn_of_redacted_arguments,
)
from turnledger.runtime.agent.visibility import VisibilityExpansionRequired
from turnledger.runtime.errors import DeadlineExceededError
from turnledger.runtime.journal.tool_scope import tool_scope
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.effects import Effects
from turnledger.runtime.loop.perform.record_result import add_result, record
from turnledger.runtime.loop.perform.slow_calls import SLOW_CALLS
from turnledger.runtime.session.overlay import Overlay


def start(context: EvaluationContext[Any], call: ToolCallView) -> ToolCallView:
    """Record that a call's handler is about to run; returns the call with its attempt."""
    call = msgspec.structs.replace(call, attempts=call.attempts + 1)
    tool = context.tools.get(call.name)
    context.journal.add(
        ToolCallStarted(
            evaluation_id=call.evaluation_id,
            call_id=call.call_id,
            name=call.name,
            attempt=call.attempts,
            on_interrupt=tool.on_interrupt if tool is not None else "",
        )
    )
    return call


def _context(context: EvaluationContext[Any], call: ToolCallView) -> ToolContext:
    # A call that waited for approval was asked for before, and its first attempt is this one.
    was_waiting = call.approval in ("approved", "edited")
    is_older = call.number in context.calls_before and not was_waiting
    return ToolContext(
        call_id=call.call_id,
        is_resume=call.attempts > 1 or is_older,
        prompt=context.prompt,
        rendered_prompt=context.rendered,
        adapter=context.adapter,
        session=context.session,
        event_bus=context.bus,
        deadline=context.deadline,
        resources=context.resources.resources if context.resources else None,
    )


def prepared_call(context: EvaluationContext[Any], call: ToolCallView) -> PreparedCall | Invocation:
    """The call with the arguments that the handler gets, decoded; a refusal if they are invalid."""
    # A call that was started may have had its effect: what becomes of it is decided elsewhere.
    if call.attempts == 0:
        redactor = context.journal.ledger.redactor
        refusal = refused_as_redacted(call.name, call.given_arguments, redactor)
        if refusal is not None:
            return refusal
    return prepared(context.tools, call.name, call.given_arguments)


def handled(
    context: EvaluationContext[Any], call: ToolCallView, ready: PreparedCall, overlay: Overlay
) -> Invocation:
    """Call the handler; the overlay holds what it changes in the session."""
    warn_of_redacted_arguments(call.name, call.call_id, call.given_arguments)
    with (
        SLOW_CALLS.watching(context, call),
        context.session.scope(overlay),
        tool_scope(context.journal, call),
    ):
        return call_prepared(ready, _context(context, call))


def refuse(context: EvaluationContext[Any], call: ToolCallView, refusal: Invocation) -> None:
    """Record a call with invalid arguments. It is never started, so it is never in doubt."""
    record(context, call, refusal, Overlay(context.journal, call.call_id))


def run_here(context: EvaluationContext[Any], effects: Effects, call: ToolCallView) -> None:
    """Run one call in this thread."""
    effects.check_limits(context, "tool")
    ready = prepared_call(context, call)
    if isinstance(ready, Invocation):
        refuse(context, call, ready)
        return
    call = start(context, call)
    context.journal.commit()
    overlay = Overlay(context.journal, call.call_id)
    try:
        invocation = handled(context, call, ready, overlay)
    except Exception as error:
        overlay.close()
        ended_by(context, call, error)
    else:
        record(context, call, invocation, overlay)


def ended_by(context: EvaluationContext[Any], call: ToolCallView, error: Exception) -> None:
    """Record what a handler raised that ends more than its own call, and raise it.

    An error that can't be recorded as what it is becomes the call's failed result.
    """
    if isinstance(error, VisibilityExpansionRequired):
        try:
            _supersede(context, call, error)
        except Exception as wrong:
            outcome = failed(call.name, None, type(wrong).__name__, error_text(wrong))
            record(context, call, outcome, Overlay(context.journal, call.call_id))
            return
        raise error
    message = error_message(error)
    text = f"Tool {call.name!r} failed: {message}"
    add_result(context, call, text, error=(type(error).__name__, message), raised=error)
    if not isinstance(error, DeadlineExceededError):
        return
    context.journal.commit()
    payload = deadline_provider_payload(context.deadline)
    raise context.failed(message, "tool", payload) from error


def _supersede(
    context: EvaluationContext[Any], call: ToolCallView, wanted: VisibilityExpansionRequired
) -> None:
    overrides = {path: shown.value for path, shown in wanted.requested_overrides.items()}
    if not context.progress.superseded:  # by another call of the same turn
        context.journal.add(
            EvaluationSuperseded(
                evaluation_id=call.evaluation_id, reason=wanted.reason, overrides=overrides
            )
        )
