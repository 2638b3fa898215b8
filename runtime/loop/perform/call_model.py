"""Asking the model: a request that goes out, again if need be, and the reply that is recorded.

What led to a request is on disk before it goes out. A reply is recorded whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from turnledger.ledger import (
    InvalidInputError,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    ToolCallRecord,
)
from turnledger.runtime.agent.models.limits import Deadline, deadline_provider_payload
from turnledger.runtime.agent.models.request import Reply, Request, Sending, ToolCall
from turnledger.runtime.agent.models.retry import (
    FailedAttempt,
    RetryCancelledError,
    call_with_retries,
)
from turnledger.runtime.errors import DeadlineExceededError, SessionError
from turnledger.runtime.journal.journal import Journal, Known, Pending
from turnledger.runtime.journal.loop_progress import ByPlace, provider_data
from turnledger.runtime.loop.decide import CallModel
from turnledger.runtime.loop.events import TextReceived

if TYPE_CHECKING:
    from turnledger.runtime.loop.evaluation import Evaluation


# How much of what an error says is recorded: some hold whole pages.
_MOST_SAID = 20_000


UNMADE = "The request can't be made: "


class EmptyReplyError(ValueError):
    """A model answered with neither text nor calls."""


class BadReplyError(ValueError):
    """A model answered with something that can't be recorded."""


class _NotRecorded(Exception):  # noqa: N818 - it carries an error, and nobody else sees it
    """The ledger refused, which is no failure of the model: the error passes as it is."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def request_of(evaluation: Evaluation[Any], turn: int) -> Request:
    """The request for a turn: everything in it is in the ledger, or in the prompt."""
    journal, rendered, adapter = evaluation.journal, evaluation.rendered, evaluation.adapter
    progress = evaluation.progress
    history = journal.state.conversation.history(progress.evaluation_id)
    native = evaluation.wants_output and adapter.use_native_response_format
    assert not native or rendered.output is not None
    return Request(
        evaluation_id=progress.evaluation_id,
        turn=turn,
        prompt_name=evaluation.prompt.label,
        system=history.system,
        history=history,
        tools=evaluation.specs,
        tool_choice=adapter.tool_choice if progress.calls == 0 else "auto",
        response_format=(
            rendered.output.response_format(rendered.key) if native and rendered.output else None
        ),
        provider_data=ByPlace(progress.provider_data),
        prompt_digest=progress.prompt_digest or rendered.digest,
        model=adapter.model,
        options=adapter.request_options,
        blob=journal.blob,
        kept=evaluation.kept,
    )


def call_model(evaluation: Evaluation[Any], effect: CallModel) -> None:
    """Ask for the reply of a turn and record what comes of it."""
    journal, adapter = evaluation.journal, evaluation.adapter
    request = request_of(evaluation, effect.turn)
    digest, answers = request.digest, evaluation.answers
    try:
        asking = (
            LiveAsking(evaluation, request)
            if answers is None
            else answers.asking(evaluation, request)
        )
    except Exception as error:
        journal.commit()
        raise evaluation.failed(f"{UNMADE}{said_by(error)}", "request") from error

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
        reply = asking.reply(effect.attempt + number - 1)
        if reply is not None:
            _record(evaluation, effect.turn, reply)

    def failed(failure: FailedAttempt) -> None:
        error = failure.error
        if isinstance(error, _NotRecorded):
            return
        _commit(
            journal,
            ModelCallFailed(
                evaluation_id=request.evaluation_id,
                turn=effect.turn,
                error_type=type(error).__name__,
                error_message=said_by(error),
                retryable=failure.retryable,
                status=_status(error),
                attempt=effect.attempt + failure.attempt - 1,
            ),
        )

    try:
        asking.through(attempt, failed)
    except RetryCancelledError:
        raise
    except _NotRecorded as refused:
        raise refused.error from None
    except DeadlineExceededError as error:
        journal.commit()
        late = deadline_provider_payload(evaluation.deadline)
        raise evaluation.failed(str(error), "request", late) from error
    except (EmptyReplyError, BadReplyError) as error:
        raise evaluation.failed(str(error), "response") from error
    except Exception as error:
        raise evaluation.failed(f"The model call failed: {said_by(error)}", "request") from error


class LiveAsking:
    """The provider is asked, again if need be."""

    def __init__(self, evaluation: Evaluation[Any], request: Request) -> None:
        self._evaluation = evaluation
        self._turn = request.turn
        self._payload = evaluation.adapter.encode(request)

    def reply(self, attempt: int) -> Reply:
        evaluation = self._evaluation
        sending = Sending(
            timeout=_seconds_left(evaluation.deadline),
            on_text=_teller(evaluation, self._turn, attempt),
        )
        raw = evaluation.adapter.send(self._payload, sending)
        return _decoded(evaluation, self._turn, raw)

    def through(
        self, attempt: Callable[[int], None], failed: Callable[[FailedAttempt], None]
    ) -> None:
        adapter = self._evaluation.adapter
        call_with_retries(
            attempt,
            policy=adapter.throttle,
            deadline=self._evaluation.deadline,
            sleep=adapter.cancelled.wait,
            advise=adapter.advise,
            on_failure=failed,
        )


def _commit(journal: Journal, event: Pending) -> None:
    try:
        journal.add(event)
        journal.commit()
    except Exception as error:
        raise _NotRecorded(error) from error


def _seconds_left(deadline: Deadline | None) -> float | None:
    return None if deadline is None else max(deadline.remaining().total_seconds(), 0.001)


def _teller(evaluation: Evaluation[Any], turn: int, attempt: int) -> Callable[[str], None] | None:
    """Tells of text as it comes; None if nobody asked for a stream."""
    adapter = evaluation.adapter
    if not adapter.stream:
        return None

    def tell(text: str) -> None:
        if evaluation.deadline is not None:  # a timeout is for one read: drops can go on for ever
            evaluation.deadline.check(before="the end of the answer")
        received = TextReceived(
            prompt_name=evaluation.prompt.label,
            adapter=adapter.name,
            session_id=evaluation.session.session_id,
            evaluation_id=evaluation.evaluation_id or "",
            turn=turn,
            attempt=attempt,
            text=text,
        )
        evaluation.bus.publish(received)
        if adapter.on_delta is not None:
            adapter.on_delta(received)

    return tell


def _status(error: Exception) -> int | None:
    """The HTTP status that an error carries, under one of the names that SDKs have for it."""
    for name in ("status_code", "status", "code"):
        found = getattr(error, name, None)
        if type(found) is int:
            return found
    return None


def _decoded(evaluation: Evaluation[Any], turn: int, raw: Any) -> Reply:
    try:
        reply = evaluation.adapter.decode(raw)
    except Exception as error:
        raise BadReplyError(f"The reply can't be read: {said_by(error)}") from error
    evaluation.payload = reply.payload
    if reply.is_empty:
        raise EmptyReplyError("The model replied with neither text nor tool calls.")
    calls = tuple(
        call if call.call_id else replace(call, call_id=_call_id(evaluation, turn, number))
        for number, call in enumerate(reply.tool_calls, start=1)
    )
    _check_calls(calls)
    return replace(reply, tool_calls=calls)


def _call_id(evaluation: Evaluation[Any], turn: int, number: int) -> str:
    """The id of a call that came without one: the same whoever works it out."""
    return f"call_{(evaluation.evaluation_id or '').replace('-', '')[-12:]}_{turn}_{number}"


def _check_calls(calls: tuple[ToolCall, ...]) -> None:
    seen: set[str] = set()
    for call in calls:
        if not call.name:
            raise BadReplyError(f"The model calls a tool without a name: {call!r}.")
        if call.call_id in seen:
            raise BadReplyError(f"The model uses the call id {call.call_id!r} twice in one reply.")
        seen.add(call.call_id)


def _record(evaluation: Evaluation[Any], turn: int, reply: Reply) -> None:
    """The reply: its message, then what came with it. It commits with what comes next."""
    calls = tuple(ToolCallRecord(c.call_id, c.name, c.arguments) for c in reply.tool_calls)
    said = evaluation.message("assistant", reply.text or "", tool_calls=calls)
    message_id: UUID = said.message.message_id
    evaluation_id = said.message.evaluation_id

    def replied(known: Known) -> ModelReplied:
        place = len(known.run.conversation.history(evaluation_id))
        return ModelReplied(
            evaluation_id=evaluation_id,
            turn=turn,
            message_id=message_id,
            usage=reply.usage,
            finish_reason=reply.finish_reason,
            model=reply.model or evaluation.adapter.model,
            provider_data=provider_data(reply.provider_data, reply.parsed, place),
        )

    try:
        evaluation.journal.add(said, replied)
    except (InvalidInputError, SessionError) as error:
        raise BadReplyError(f"The reply can't be recorded: {said_by(error)}") from error
    if evaluation.wishes.budget_tracker is not None:
        evaluation.wishes.budget_tracker.record(reply.usage)


def speechless(name: str) -> str:
    return f"{name} (it can't say why)"


def said_by(error: BaseException) -> str:
    """An exception in words that can be stored."""
    try:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:
        said = speechless(type(error).__name__)
    return said[:_MOST_SAID].encode(errors="replace").decode()
