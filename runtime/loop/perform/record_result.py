"""Records a tool's result, its message and what the tool changed, all or nothing.

Listeners are told first and may veto the result. All of it is one addition to the journal, so
that none of it is ever on disk without the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from turnledger.ledger import (
    CheckpointReached,
    InvalidInputError,
    ToolCallCompleted,
    ToolCallFailed,
)
from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import error_text
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import ToolCallView
from turnledger.runtime.agent.tools.call import Invocation, failed
from turnledger.runtime.agent.tools.tool import RejectedToolParams
from turnledger.runtime.agent.traceback_text import traceback_text
from turnledger.runtime.bus import format_publish_failures
from turnledger.runtime.journal.journal import Addition, Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.events import ToolInvoked
from turnledger.runtime.session.overlay import Overlay

logger = logger_of("turnledger.loop")
# Characters of rejected arguments in the log.
MOST_ARGUMENTS = 1000


def record(
    context: EvaluationContext[Any], call: ToolCallView, invocation: Invocation, overlay: Overlay
) -> None:
    """Publish the result, which listeners may veto, and add it with what the tool changed.

    The handler has returned, so there is an outcome whatever fails from here on: publishing,
    encoding, a reducer, the resources. What must end the evaluation is raised after that.
    """
    ending: BaseException | None = invocation.interrupt
    if isinstance(invocation.params, RejectedToolParams):
        _log_rejected(context, call, invocation)
    if not invocation.succeeded:
        # What a failed tool changed is dropped; what listeners change upon the failure is kept.
        overlay.close()
        overlay = Overlay(context.journal, call.call_id)
        ending = _put_back(context) or ending
    event = ToolInvoked(
        name=call.name,
        params=invocation.params,
        result=invocation.result,
        call_id=call.call_id,
        session_id=context.session.session_id,
        prompt_name=context.prompt.label,
        adapter=context.adapter.name,
        rendered_output=with_edit(call, invocation.text),
    )
    veto = ""
    try:
        with context.session.scope(overlay):
            veto = format_publish_failures(context.bus.publish(event).errors)
    except BaseException as error:  # of the bus itself, or an interrupt in a listener
        veto = f"Not accepted: {error_text(error)}"
        ending = ending if isinstance(error, Exception) else error
    context.notes.invoked.append(event)
    if not veto:
        ending = _add_outcome(context, call, invocation, overlay) or ending
    elif invocation.succeeded:
        ending = _put_back(context) or ending
        # The handler ran, so the call is completed; what it changed is dropped.
        _add_or_say_why(context, call, veto)
    else:
        text = f"{invocation.text}\n\n{veto}"
        _add_or_say_why(context, call, text, error=_error_of(invocation), raised=invocation.raised)
    overlay.close()
    if ending is not None:
        context.journal.commit()
        raise ending


def _add_outcome(
    context: EvaluationContext[Any],
    call: ToolCallView,
    invocation: Invocation,
    overlay: Overlay,
) -> Exception | None:
    """Add a result that was not vetoed; a failed one instead if it can't be recorded."""
    error = None if invocation.succeeded else _error_of(invocation)
    try:
        if error is None and context.resources is not None:
            # On top of the tool's session changes, which they are one commit with.
            context.resources.record(overlay)
        overlay.close()
        add_result(
            context,
            call,
            invocation.text,
            value=invocation.value if error is None else None,
            error=error,
            raised=invocation.raised,
            first=(overlay.changes,),
            blobs=overlay.blobs,
        )
        return None
    except Exception as wrong:
        # Too large, or a reducer fails on it after what parallel tools changed.
        overlay.close()
        why = f"its result can't be recorded: {error_text(wrong)}"
        unrecordable = failed(call.name, invocation.params, type(wrong).__name__, why)
        ending = _put_back(context) if error is None else None
        _add_or_say_why(context, call, unrecordable.text, error=error or _error_of(unrecordable))
        return ending


def _add_or_say_why(
    context: EvaluationContext[Any],
    call: ToolCallView,
    text: str,
    *,
    error: tuple[str, str] | None = None,
    raised: Exception | None = None,
) -> None:
    """Add a result without changes; if even its text can't be recorded, a short one says so."""
    try:
        add_result(context, call, text, error=error, raised=raised)
    except InvalidInputError as wrong:
        short = f"The result of tool {call.name!r} can't be recorded ({type(wrong).__name__})."
        add_result(context, call, short, error=(error[0], short) if error is not None else None)


def _error_of(invocation: Invocation) -> tuple[str, str]:
    return invocation.error_type or "ToolFailed", invocation.error_message


def _put_back(context: EvaluationContext[Any]) -> Exception | None:
    """Undo what a failed tool did to the resources, if it did not run in parallel.

    Gives the error that ends the evaluation if that is not possible.
    """
    if context.resources is not None and context.adapter.parallel_tools == 1:
        journal = context.journal
        try:
            context.resources.restore_recorded(journal.known, journal.blob)
        except Exception as error:
            why = f"The resources can't be restored after a failed tool: {error_text(error)}"
            ending = context.failed(why, "tool")
            ending.__cause__ = error
            return ending
    return None


def add_result(
    context: EvaluationContext[Any],
    call: ToolCallView,
    text: str,
    *,
    value: Any = None,
    error: tuple[str, str] | None = None,
    raised: Exception | None = None,
    first: Sequence[Addition] = (),
    blobs: Sequence[bytes] = (),
) -> None:
    """Add a result, its message and perhaps a checkpoint, after what the tool changed.

    The next commit writes them.

    Args:
        context: The evaluation.
        call: The call.
        text: The message for the model; arguments that a person changed are told before it.
        value: The result as data.
        error: Type and message, if the call failed.
        raised: What its handler raised, for the traceback.
        first: What the tool changed.
        blobs: Bytes that `first` names.
    """
    journal = context.journal
    message_id = uuid4()
    # Numbered when it is added: the tool may have added messages of its own.
    message = context.later_message(
        "tool",
        with_edit(call, text),
        tool_call_id=call.call_id,
        tool_name=call.name,
        is_error=error is not None,
        message_id=message_id,
    )
    common: dict[str, Any] = {
        "evaluation_id": call.evaluation_id,
        "call_id": call.call_id,
        "name": call.name,
        "message_id": message_id,
        "attempt": max(call.attempts, 1),
    }
    if error is not None:
        kind, message_text = error
        outcome = ToolCallFailed(
            error_type=kind,
            error_message=message_text,
            traceback=_traceback(context, call, raised) if raised is not None else "",
            **common,
        )
        journal.add(*first, outcome, message, blobs=blobs)
        return
    completed = ToolCallCompleted(value=value, **common)
    every = journal.checkpoint_interval
    done = journal.progress.tool_calls_completed + 1
    last = (checkpoint(journal, "post_tool"),) if every and done % every == 0 else ()
    journal.add(*first, completed, message, *last, blobs=blobs)


def with_edit(call: ToolCallView, text: str) -> str:
    """A tool's text for the model; says first which arguments a person gave it instead."""
    if not call.edited_arguments:
        return text
    # Recorded words: a replay compares them, so they stay as they are.
    note = (
        "A person changed the arguments of this call. It was called with "
        f"{call.edited_arguments} instead of yours."
        if call.attempts
        else f"A person changed the arguments of this call to {call.edited_arguments}."
    )
    return f"{note}\n\n{text}"


def _traceback(context: EvaluationContext[Any], call: ToolCallView, raised: Exception) -> str:
    """The traceback for the event; it is logged too."""
    journal = context.journal
    text = traceback_text(raised, journal.ledger.redact_text)
    logger.warning(
        "tool %r failed in call %s of run %s\n%s", call.name, call.call_id, journal.run_id, text
    )
    return text


def _log_rejected(
    context: EvaluationContext[Any], call: ToolCallView, invocation: Invocation
) -> None:
    logger.warning(
        "call %s of run %s was rejected: %s The arguments: %s",
        call.call_id,
        context.journal.run_id,
        invocation.error_message,
        call.given_arguments[:MOST_ARGUMENTS],
    )


def checkpoint(journal: Journal, phase: Any) -> Addition:
    """A checkpoint of the state before it, made when that state is known."""
    now = to_datetime(journal.clock.micros())

    def made(known: Known) -> CheckpointReached:
        return CheckpointReached(
            phase=phase,
            tool_calls_completed=known.progress.tool_calls_completed,
            state_digest=known.run.state_digest,
            outcome_digest=known.run.outcome_digest,
            created_at=now,
        )

    return made
