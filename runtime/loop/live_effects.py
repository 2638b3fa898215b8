"""Live effects: the provider is called, handlers run, and limits are checked against the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.limits import Deadline, deadline_provider_payload
from turnledger.runtime.agent.models.request import Reply, Request, Sending, ToolCall, as_data
from turnledger.runtime.agent.models.retry import FailedAttempt, call_with_retries
from turnledger.runtime.agent.run_control import interruptible
from turnledger.runtime.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    EvaluationPhase,
    TurnLimitExceededError,
)
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.events import TextReceived, wants_text
from turnledger.runtime.loop.perform.approval import ask_approval
from turnledger.runtime.loop.perform.failures import BadReplyError, EmptyReplyError, failure_text
from turnledger.runtime.loop.perform.run_tools import run_tools
from turnledger.runtime.loop.perform.send import send

OutputT = TypeVar("OutputT")


class LiveEffects:
    """`Effects` for real."""

    def begin(self, context: EvaluationContext[OutputT]) -> EvaluationContext[OutputT]:
        return context

    def check_limits(
        self, context: EvaluationContext[Any], phase: EvaluationPhase, *, reserve: int = 0
    ) -> None:
        """PromptEvaluationError if time or tokens are used up; what was done is on disk then."""
        deadline, tracker = context.deadline, context.options.budget_tracker
        try:
            if deadline is not None:
                deadline.check(before=f"the {phase}")
            if tracker is not None:
                tracker.check(reserve=reserve)
            check_turns(context, phase)
        except DeadlineExceededError as error:
            context.journal.commit()
            late = deadline_provider_payload(deadline)
            raise context.failed(str(error), phase, late) from error
        except (BudgetExceededError, TurnLimitExceededError) as error:
            context.journal.commit()
            raise context.failed(str(error), "budget") from error

    def model_turn(self, context: EvaluationContext[Any], request: Request) -> LiveTurn:
        return LiveTurn(context, request)

    def ask_approval(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        ask_approval(context, calls)

    def run_tools(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        run_tools(context, self, calls)

    def asks_again(self, context: EvaluationContext[Any]) -> bool:
        return may_ask_again(context)


class LiveTurn:
    """A turn of the model from the provider itself, with its policy for retries."""

    def __init__(self, context: EvaluationContext[Any], request: Request) -> None:
        self._context = context
        self._turn = request.turn
        self._payload = context.adapter.encode(request)

    def reply(self, attempt: int) -> Reply:
        context = self._context
        sending = Sending(
            timeout=_seconds_left(context.deadline),
            on_text=_text_publisher(context, self._turn, attempt),
        )
        raw = send(context.adapter, self._payload, sending)
        return _decoded(context, self._turn, raw)

    def run_attempts(
        self, attempt: Callable[[int], None], failed: Callable[[FailedAttempt], None]
    ) -> None:
        adapter = self._context.adapter

        def sleep(seconds: float) -> bool:
            return interruptible(partial(adapter.cancelled.wait, seconds), "turnledger-retry")

        call_with_retries(
            attempt,
            policy=adapter.throttle,
            deadline=self._context.deadline,
            sleep=sleep,
            advise=adapter.advise,
            on_failure=failed,
        )


def may_ask_again(context: EvaluationContext[Any]) -> bool:
    """Whether fewer outputs of this evaluation were rejected than may be."""
    return context.progress.rejections < context.journal.output_retries


def check_turns(context: EvaluationContext[Any], phase: EvaluationPhase) -> None:
    """TurnLimitExceededError if the model would be asked for more replies than the run may have."""
    limit = context.journal.turn_limit
    if limit is not None and phase == "request":
        limit.check(context.journal.progress.replies)


def _seconds_left(deadline: Deadline | None) -> float | None:
    return None if deadline is None else max(deadline.remaining().total_seconds(), 0.001)


def _text_publisher(
    context: EvaluationContext[Any], turn: int, attempt: int
) -> Callable[[str], None] | None:
    """Publishes text as it comes; None if neither the adapter nor the caller wants it."""
    adapter = context.adapter
    if not adapter.stream and not wants_text():
        return None

    def tell(text: str) -> None:
        if context.deadline is not None:  # the timeout is for one read; a slow stream has many
            context.deadline.check(before="the end of the answer")
        received = TextReceived(
            prompt_name=context.prompt.label,
            adapter=adapter.name,
            session_id=context.session.session_id,
            evaluation_id=context.evaluation_id,
            turn=turn,
            attempt=attempt,
            text=text,
        )
        context.bus.publish(received)
        if adapter.on_delta is not None:
            adapter.on_delta(received)

    return tell


def _decoded(context: EvaluationContext[Any], turn: int, raw: Any) -> Reply:
    try:
        reply = context.adapter.decode(raw)
        payload = as_data(raw) if reply.payload is None else reply.payload
    except Exception as error:
        raise BadReplyError(f"The reply can't be read: {failure_text(error)}") from error
    context.notes.payload = payload
    if reply.is_empty:
        raise EmptyReplyError("The model replied with neither text nor tool calls.")
    calls = tuple(
        call if call.call_id else replace(call, call_id=_call_id(context, turn, number))
        for number, call in enumerate(reply.tool_calls, start=1)
    )
    _check_calls(calls)
    return replace(reply, tool_calls=calls)


def _call_id(context: EvaluationContext[Any], turn: int, number: int) -> str:
    """An id for a call that came without one: the same in every process."""
    return f"call_{context.evaluation_id.replace('-', '')[-12:]}_{turn}_{number}"


def _check_calls(calls: tuple[ToolCall, ...]) -> None:
    seen: set[str] = set()
    for call in calls:
        if not call.name:
            raise BadReplyError(f"The model calls a tool without a name: {call!r}.")
        if call.call_id in seen:
            raise BadReplyError(f"The model uses the call id {call.call_id!r} twice in one reply.")
        seen.add(call.call_id)
