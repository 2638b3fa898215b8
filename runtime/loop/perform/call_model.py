"""One turn of the model: the request, its attempts, and the reply that is recorded.

What led to a request is on disk before it is sent. A reply is recorded whole or not at all.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from turnledger.ledger import (
    InvalidInputError,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    ToolCallRecord,
)
from turnledger.runtime.agent.models.limits import deadline_provider_payload
from turnledger.runtime.agent.models.request import Reply, Request
from turnledger.runtime.agent.models.retry import (
    FailedAttempt,
    RetryCancelledError,
)
from turnledger.runtime.errors import DeadlineExceededError, SessionError
from turnledger.runtime.journal.journal import Addition, Journal
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import ProviderData, provider_data
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.decide import CallModel
from turnledger.runtime.loop.effects import Effects
from turnledger.runtime.loop.perform.failures import (
    BadReplyError,
    EvaluationEnded,
    error_type,
    failure_text,
    reply_error,
)


class _NotRecorded(Exception):  # noqa: N818 - it carries an error, and stays in this module
    """The ledger refused an event. Not a failure of the model: the error passes as it is."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def request_of(context: EvaluationContext[Any], turn: int) -> Request:
    """The request for a turn; everything in it comes from the ledger or the prompt."""
    journal, rendered, adapter = context.journal, context.rendered, context.adapter
    progress = context.progress
    history = journal.state.conversation.history(progress.evaluation_id)
    native = context.wants_output and adapter.use_native_response_format
    assert not native or rendered.output is not None
    return Request(
        evaluation_id=progress.evaluation_id,
        turn=turn,
        prompt_name=context.prompt.label,
        system=history.system,
        history=history,
        tools=context.specs,
        tool_choice=adapter.tool_choice if progress.calls == 0 else "auto",
        response_format=(
            rendered.output.response_format(rendered.key) if native and rendered.output else None
        ),
        provider_data=ProviderData(progress.provider_data),
        prompt_digest=progress.prompt_digest or rendered.digest,
        model=adapter.model,
        options=adapter.request_options,
        blob=journal.blob,
        kept=context.notes.encoder,
    )


def call_model(context: EvaluationContext[Any], effects: Effects, effect: CallModel) -> None:
    """Get the reply of a turn and record it, or each failed attempt."""
    journal, adapter = context.journal, context.adapter
    request = request_of(context, effect.turn)
    digest = request.digest
    try:
        model = effects.model_turn(context, request)
    except EvaluationEnded as ended:
        raise ended.error from ended.cause
    except Exception as error:
        journal.commit()
        why = f"The request can't be made: {failure_text(error)}"
        raise context.failed(why, "request", step="encode") from error

    def attempt(number: int) -> None:
        _commit(
            journal,
            ModelCalled(
                evaluation_id=request.evaluation_id,
                turn=effect.turn,
                request_digest=digest,
                adapter=adapter.name,
                model=adapter.model,
                attempt=effect.attempt + number - 1,
            ),
        )
        reply = model.reply(effect.attempt + number - 1)
        if reply is not None:
            _record(context, effect.turn, reply)

    def failed(failure: FailedAttempt) -> None:
        error = failure.error
        if isinstance(error, _NotRecorded):
            return
        _commit(
            journal,
            ModelCallFailed(
                evaluation_id=request.evaluation_id,
                turn=effect.turn,
                error_type=error_type(error),
                error_message=failure_text(error),
                reply_error=reply_error(error),
                retryable=failure.retryable,
                status=_status(error),
                attempt=effect.attempt + failure.attempt - 1,
            ),
        )

    try:
        model.run_attempts(attempt, failed)
    except RetryCancelledError:
        raise
    except _NotRecorded as refused:
        raise refused.error from None
    except EvaluationEnded as ended:
        raise ended.error from ended.cause
    except DeadlineExceededError as error:
        journal.commit()
        late = deadline_provider_payload(context.deadline)
        raise context.failed(str(error), "request", late) from error
    except Exception as error:
        if wrong := reply_error(error):
            raise context.failed(wrong, "response") from error
        raise context.failed(f"The model call failed: {failure_text(error)}", "request") from error


def _commit(journal: Journal, event: Addition) -> None:
    try:
        journal.add(event)
        journal.commit()
    except Exception as error:
        raise _NotRecorded(error) from error


def _status(error: Exception) -> int | None:
    """The HTTP status of an error, under any of the names that SDKs use for it."""
    for name in ("status_code", "status", "code"):
        found = getattr(error, name, None)
        if type(found) is int:
            return found
    return None


def _record(context: EvaluationContext[Any], turn: int, reply: Reply) -> None:
    """Add the reply's message, then the rest of it. The next commit writes both."""
    calls = tuple(ToolCallRecord(c.call_id, c.name, c.arguments) for c in reply.tool_calls)
    message = context.message("assistant", reply.text or "", tool_calls=calls)
    message_id: UUID = message.message.message_id
    evaluation_id = message.message.evaluation_id

    def replied(known: Known) -> ModelReplied:
        place = len(known.run.conversation.history(evaluation_id))
        return ModelReplied(
            evaluation_id=evaluation_id,
            turn=turn,
            message_id=message_id,
            usage=reply.usage,
            finish_reason=reply.finish_reason,
            model=reply.model or context.adapter.model,
            provider_data=provider_data(reply.provider_data, reply.parsed, place),
        )

    try:
        context.journal.add(message, replied)
    except (InvalidInputError, SessionError) as error:
        raise BadReplyError(f"The reply can't be recorded: {failure_text(error)}") from error
    if context.options.budget_tracker is not None:
        context.options.budget_tracker.record(reply.usage)
