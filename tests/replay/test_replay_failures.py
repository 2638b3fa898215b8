"""Runs with failures on record run again as they were: nothing about a failure is a difference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event as Flag
from typing import Any

import pytest

from tests.agent import says
from tests.matrices import cells
from tests.replay.farm import Farm
from tests.replay.shepherd import DONE, Flock, Sheep, Shepherd, Tally, asks, calls, remembers
from tests.unit.runtime.clocks import StandingClock
from turnledger.ledger import ModelCallFailed, RunFailed, ToolCallFailed
from turnledger.runtime import (
    Budget,
    Deadline,
    DeadlineExceededError,
    MainLoopConfig,
    PromptEvaluationError,
    PromptRenderError,
    Reply,
    ScriptedAdapter,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from turnledger.runtime.agent.models import RetryCancelledError


class Flaky(Exception):  # noqa: N818 - as a provider may call it
    """A provider's error that says what it is."""

    def __init__(self, *args: Any, status: int | None = None, retryable: bool = True) -> None:
        super().__init__(*args)
        self.status_code = status
        self.retryable = retryable
        self.retry_after: timedelta | None = None


class Speechless(Exception):  # noqa: N818 - it can't even say that
    """An error that can't say why."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def failing(errors: int, *made: Exception, turn: int = 1) -> Callable[[Any], Reply]:
    """A model whose calls of one turn fail so often, and then go on: a1, and an answer."""
    left = [made[number % len(made)] for number in range(errors)]

    def reply(request: Any) -> Reply:
        if request.turn == turn and left:
            raise left.pop(0)
        return calls("a1") if request.turn == 1 else DONE

    return reply


# --- the model ------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("status", [429, 500])
def test_calls_that_failed_and_were_made_again(farm: Farm, status: int, turn: int) -> None:
    """Two failed attempts, then an answer."""
    replies = failing(2, Flaky("slow down", status=status), turn=turn)
    run = farm.record(replies=replies)
    farm.check(run, "model.call_failed", "run.completed")
    failed = [one for one in farm.events(run) if isinstance(one, ModelCallFailed)]
    assert [(one.status, one.retryable) for one in failed] == [(status, True)] * 2


_ERRORS = {
    "429": Flaky("slow down", status=429),
    "for good": Flaky("no such model", status=404, retryable=False),
    "without a word": Flaky(),
    "an empty word": Flaky(""),
    "a colon at its end": Flaky("it says: "),
    "its own name": Flaky("Flaky: Flaky: oh"),
    "several arguments": Flaky("one", 2),
    "several lines": Flaky("one\ntwo\n"),
    "a lone surrogate": Flaky("\ud800"),
    "very long": Flaky("x" * 50_000),
    "speechless": Speechless("never told"),
    "a timeout": TimeoutError(),
    "like a limit": DeadlineExceededError("the provider's own idea of one"),
}


@pytest.mark.parametrize("name", _ERRORS)
def test_calls_that_were_given_up(farm: Farm, name: str) -> None:
    """Whatever the error says of itself, and if it says nothing."""
    run = farm.record(PromptEvaluationError, replies=failing(9, _ERRORS[name]))
    farm.check(run, "model.call_failed", "run.failed")


@pytest.mark.parametrize("name", _ERRORS)
def test_a_failed_run_that_was_recovered(farm: Farm, name: str) -> None:
    """It failed in its second turn, and another process had better luck."""
    run = farm.record(PromptEvaluationError, replies=failing(9, _ERRORS[name], turn=2))
    farm.recover(run, replies=failing(0))
    assert farm.check(run, "run.failed", "run.resumed", "run.completed").attempts == 2


_BAD: dict[str, Any] = {
    "empty": Reply(),
    "no text": says(""),
    "an id twice": asks(("a", "count", "{}"), ("a", "weigh", "{}")),
    "a call without a name": asks(("a", "", "{}")),
    "no reply at all": "text",
    "too large": says("x" * 20_000_000),
}


@pytest.mark.parametrize("name", _BAD)
def test_replies_that_are_none(farm: Farm, name: str) -> None:
    """Empty ones, and those that can't be recorded."""
    run = farm.record(PromptEvaluationError, replies=[_BAD[name]])
    farm.check(run, "model.call_failed", "run.failed")


def test_a_refusal(farm: Farm) -> None:
    """The model says no: that is an answer too."""
    run = farm.record(replies=[says("I can't help with that.", finish_reason="refusal")])
    farm.check(run, "run.completed")


def test_an_answer_that_is_no_output(farm: Farm) -> None:
    """Prose where a structure was asked for."""
    run = farm.record(PromptEvaluationError, replies=[calls("a1"), DONE], output=Tally)
    farm.check(run, "run.failed")


def test_output_that_the_provider_parsed(farm: Farm) -> None:
    """It is on record as data."""
    run = farm.record(
        replies=[calls("a1"), says('{"sheep": 3}', parsed={"sheep": 3})],
        output=Tally,
        adapter_options={"use_native_response_format": True},
    )
    farm.check(run, "evaluation.finished", "tool_message.amended")


class Tongueless(ScriptedAdapter[Any]):
    """A provider whose format can't say the second request."""

    def encode(self, request: Any) -> Any:
        if request.turn == 2:
            raise ValueError("no such thing in this format")
        return super().encode(request)


def test_a_request_that_can_not_be_made(farm: Farm) -> None:
    """The adapter could not encode it, so nothing was called."""
    run = farm.record(PromptEvaluationError, adapter=Tongueless)
    farm.check(run, "run.failed")


def test_a_prompt_that_can_not_be_made(farm: Farm) -> None:
    """What create_prompt raises ends the run, each time."""

    def refuses(prompt: Any) -> Any:
        raise PromptRenderError("no words", prompt="replay/shepherd")

    run = farm.record(PromptRenderError, opens_with=refuses)
    farm.check(run, "run.failed")


def test_a_wait_that_was_cancelled(farm: Farm) -> None:
    """The run stays as it is, and goes on elsewhere."""
    farm.options = {}

    def cancels(request: Any) -> Reply:
        loops[0]._adapter.cancelled.set()
        raise Flaky("slow down", status=429)

    loops: list[Shepherd] = []
    make, farm.loop = farm.loop, lambda **changed: loops.append(make(**changed)) or loops[-1]  # type: ignore[method-assign,func-returns-value]
    run = farm.record(RetryCancelledError, replies=cancels)
    farm.check(run, "model.call_failed")
    farm.recover(run, replies=failing(0))
    assert farm.check(run, "run.resumed", "run.completed").attempts == 2


# --- limits -------------------------------------------------------------------------------


class Timed:
    """A clock that tools and models move, and a deadline of ten minutes."""

    def __init__(self) -> None:
        self.clock = StandingClock()
        deadline = MainLoopConfig(deadline=timedelta(minutes=10))
        self.options: dict[str, Any] = {"clock": self.clock, "config": deadline}

    def too_late(self) -> None:
        self.clock.advance(timedelta(hours=1))

    def replies(self, *replies: Reply, late: int) -> Callable[[Any], Reply]:
        """Reply k to turn k; it takes too long in one turn."""

        def reply(request: Any) -> Reply:
            if request.turn == late:
                self.too_late()
            return replies[request.turn - 1]

        return reply


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_deadline_that_passed_while_the_model_thought(farm: Farm, late: int) -> None:
    """What it asked for is not done any more, and its answer comes too late."""
    timed = Timed()
    replies = timed.replies(calls("a1"), calls("a2"), DONE, late=late)
    run = farm.record(PromptEvaluationError, replies=replies, **timed.options)
    farm.check(run, "run.failed")
    (failed,) = [one for one in farm.events(run) if isinstance(one, RunFailed)]
    assert failed.cause == "DeadlineExceededError"


def test_a_deadline_that_passed_before_a_request(farm: Farm) -> None:
    """A tool took all the time, and answered all the same."""
    timed = Timed()

    def slow(params: Flock, context: ToolContext) -> Any:
        timed.too_late()
        return remembers(params, context)

    run = farm.record(PromptEvaluationError, handler=slow, **timed.options)
    farm.check(run, "tool_call.completed", "run.failed")


def test_a_deadline_that_passed_before_anything(farm: Farm) -> None:
    """Not even the first request was made."""
    over = Deadline(expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    run = farm.record(PromptEvaluationError, config=MainLoopConfig(deadline=over))
    farm.check(run, "run.failed")
    assert "model.called" not in farm.tags(run)


@pytest.mark.parametrize("turn", [1, 2])
def test_a_deadline_that_is_too_near_to_try_again(farm: Farm, turn: int) -> None:
    """The provider asks for a longer wait than there is time."""
    error = Flaky("slow down", status=429)
    error.retry_after = timedelta(hours=1)
    run = farm.record(
        PromptEvaluationError, replies=failing(1, error, turn=turn), **Timed().options
    )
    farm.check(run, "model.call_failed", "run.failed")


def test_a_deadline_that_passed_between_two_attempts(farm: Farm) -> None:
    """The failed attempt itself took too long."""
    timed = Timed()

    def reply(request: Any) -> Reply:
        timed.too_late()
        raise Flaky("slow down", status=500)

    run = farm.record(PromptEvaluationError, replies=reply, **timed.options)
    farm.check(run, "model.call_failed", "run.failed")


def test_a_deadline_that_passed_within_a_stream(farm: Farm) -> None:
    """Half of the answer was heard, and none of it is on record."""
    timed = Timed()
    run = farm.record(
        PromptEvaluationError,
        replies=timed.replies(DONE, late=1),
        adapter_options={"stream": True},
        **timed.options,
    )
    farm.check(run, "model.call_failed", "run.failed")


def test_a_deadline_that_passed_and_was_moved(farm: Farm) -> None:
    """Whoever recovers the run gives it more time."""
    timed = Timed()
    replies = timed.replies(calls("a1"), DONE, late=1)
    run = farm.record(PromptEvaluationError, replies=replies, **timed.options)
    loop = farm.loop(replies=[calls("a1"), DONE])
    loop.recover(run, deadline=timedelta(hours=5))
    assert farm.check(run, "run.failed", "run.completed").attempts == 2


def ordered(*ids: str, then: Callable[[str], None] = lambda call_id: None) -> Any:
    """A handler for calls side by side that end in this order."""
    turns = {one: Flag() for one in ids}
    turns[ids[0]].set()

    def handler(params: Flock, context: ToolContext) -> Any:
        assert turns[context.call_id].wait(30)
        try:
            then(context.call_id)
            return ToolResult(f"Counted {params.name}.")
        finally:
            after = ids.index(context.call_id) + 1
            if after < len(ids):
                turns[ids[after]].set()

    return handler


def late_in(*call_ids: str) -> Callable[[str], None]:
    def then(call_id: str) -> None:
        if call_id in call_ids:
            raise DeadlineExceededError("no time left")

    return then


def test_a_deadline_inside_a_tool(farm: Farm) -> None:
    """The handler itself gave up; what came before it stays."""

    def handler(params: Flock, context: ToolContext) -> Any:
        late_in("a2")(context.call_id)
        return remembers(params, context)

    run = farm.record(
        PromptEvaluationError, handler=handler, replies=[calls("a1"), calls("a2", "a3"), DONE]
    )
    farm.check(run, "tool_call.failed", "run.failed")


@pytest.mark.parametrize("late", [("a1",), ("a2",), ("a3",), ("a1", "a2"), ("a2", "a3")])
@pytest.mark.parametrize("order", [("a1", "a2", "a3"), ("a3", "a1", "a2"), ("a2", "a3", "a1")])
def test_a_deadline_inside_one_of_several_tools(
    farm: Farm, order: tuple[str, ...], late: tuple[str, ...]
) -> None:
    """The others end before it or after it, and it ends the run."""
    run = farm.record(
        PromptEvaluationError,
        handler=ordered(*order, then=late_in(*late)),
        replies=[calls("a1", "a2", "a3"), DONE],
        width=3,
    )
    farm.check(run, "tool_call.failed", "run.failed")


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("late", ["a1", "a2", "a3", "a4", "a5"])
def test_a_deadline_that_passed_beside_tools(farm: Farm, late: str, width: int) -> None:
    """Those under way end, and no further one begins."""
    timed = Timed()

    def handler(params: Flock, context: ToolContext) -> Any:
        if context.call_id == late:
            timed.too_late()
        return ToolResult("Counted.")

    run = farm.record(
        PromptEvaluationError,
        handler=handler,
        replies=[calls("a1", "a2", "a3", "a4", "a5"), DONE],
        width=width,
        **timed.options,
    )
    farm.check(run, "run.failed")


@pytest.mark.parametrize(("most", "width"), cells([1, 12, 13, 25, 26, 38, 39], [1, 3]))
def test_a_budget_that_was_used_up(farm: Farm, most: int, width: int) -> None:
    """Before a request, before a tool, and when the answer is there."""
    farm.options = {}
    run = farm.record(
        PromptEvaluationError if most < 39 else None,
        replies=[calls("a1", "a2"), calls("a3", "a4", "a5", "a6"), DONE],
        config=MainLoopConfig(budget=Budget(max_total_tokens=most)),
        width=width,
    )
    farm.check(run)


# --- tools ----------------------------------------------------------------------------------


def test_a_tool_that_took_too_long(farm: Farm) -> None:
    """It is told as failed, whatever it does later."""
    release = Flag()

    def handler(params: Flock, context: ToolContext) -> Any:
        if context.call_id == "a2":
            release.wait(30)
        return ToolResult("Counted.")

    try:
        run = farm.record(
            handler=handler, replies=[calls("a1", "a2", "a3"), calls("a4"), DONE], timeout=1.0
        )
    finally:
        release.set()
    farm.check(run, "tool_call.failed", "run.completed")
    (failed,) = [one for one in farm.events(run) if isinstance(one, ToolCallFailed)]
    assert failed.error_type == "ToolTimeout"


def test_one_of_several_tools_that_took_too_long(farm: Farm) -> None:
    """Those beside it are done, and the next ones begin."""
    release = Flag()

    def handler(params: Flock, context: ToolContext) -> Any:
        if context.call_id == "a1":
            release.wait(30)
        return ToolResult("Counted.")

    try:
        run = farm.record(
            handler=handler, replies=[calls("a1", "a2", "a3", "a4"), DONE], timeout=1.0, width=2
        )
    finally:
        release.set()
    farm.check(run, "tool_call.failed", "run.completed")


_OUTCOMES: dict[str, Callable[[], Any]] = {
    "raised": lambda: 1 / 0,
    "failed": lambda: ToolResult("no sheep", success=False),
    "no json": lambda: ToolResult("", value=object()),
    "too large": lambda: ToolResult("x" * 20_000_000),
    "nothing": lambda: None,
    "text": lambda: "Counted.",
    "a value": lambda: {"sheep": [1, 2.5, None, "ü"]},
}


@pytest.mark.parametrize(("name", "width"), cells(list(_OUTCOMES), [1, 3]))
def test_whatever_a_handler_gives_back(farm: Farm, name: str, width: int) -> None:
    """What it changed before it failed did not happen, then and now."""

    def handler(params: Flock, context: ToolContext) -> Any:
        context.session[Sheep].append(Sheep(params.name))
        return _OUTCOMES[name]()

    run = farm.record(handler=handler, replies=[calls("a1"), calls("a2", "a3"), DONE], width=width)
    farm.check(run, "run.completed")


_REFUSED = {
    "a wrong field": ("a1", "count", '{"flock": 1}'),
    "a wrong type": ("a1", "count", '{"name": 1}'),
    "no json": ("a1", "count", "{name"),
    "a list": ("a1", "count", "[1]"),
    "an unknown tool": ("a1", "shear", "{}"),
}


@pytest.mark.parametrize(("name", "width"), cells(list(_REFUSED), [1, 2, 3]))
def test_calls_that_were_refused(farm: Farm, name: str, width: int) -> None:
    """Alone and beside others, before them and after."""
    refused = _REFUSED[name]
    good = [(one, "count", "{}") for one in ("b1", "b2", "b3")]
    run = farm.record(
        replies=[asks(refused), asks(good[0], refused, *good[1:], ("c", *refused[1:])), DONE],
        width=width,
    )
    farm.check(run, "tool_call.failed", "run.completed")


def test_tools_that_end_in_any_order(farm: Farm) -> None:
    """What is recorded is the order in which they ended."""
    run = farm.record(
        handler=ordered("a3", "a1", "a2"), replies=[calls("a1", "a2", "a3"), DONE], width=3
    )
    farm.check(run, "run.completed")


def test_more_tools_than_run_at_a_time(farm: Farm) -> None:
    """The next begins when one ends, whichever that is."""
    run = farm.record(
        handler=ordered("a2", "a3", "a1", "a4", "a5"),
        replies=[calls("a1", "a2", "a3", "a4", "a5"), DONE],
        width=2,
    )
    farm.check(run, "run.completed")


# --- listeners --------------------------------------------------------------------------------


def _vetoing(event: ToolInvoked) -> None:
    raise RuntimeError(f"not {event.call_id}")


def _handles(params: Flock, context: ToolContext) -> Any:
    if context.call_id == "a2":
        raise RuntimeError("the gate is shut")
    return remembers(params, context)


_ALL_WAYS = [calls("a1"), calls("a2"), asks(("a3", "count", "[]"), ("a4", "shear", "{}")), DONE]


@pytest.mark.parametrize("width", [1, 2])
def test_a_listener_that_objects(farm: Farm, width: int) -> None:
    """To what was done, to what failed, and to what was refused."""
    run = farm.record(
        replies=_ALL_WAYS, handler=_handles, listeners={ToolInvoked: _vetoing}, width=width
    )
    farm.check(run, "tool_call.completed", "tool_call.failed", "run.completed")


@pytest.mark.parametrize("width", [1, 2])
def test_a_listener_that_takes_notes(farm: Farm, width: int) -> None:
    """What it notes about a call is the call's: done, failed or refused."""
    kept: list[Any] = []

    def prepares(session: Any) -> None:
        session.install(Sheep)
        kept.append(session)

    def notes(event: ToolInvoked) -> None:
        kept[-1][Sheep].append(Sheep(f"noted {event.call_id}"))

    run = farm.record(
        replies=_ALL_WAYS,
        handler=_handles,
        session=prepares,
        listeners={ToolInvoked: notes},
        width=width,
    )
    farm.check(run, "slice.event_applied", "run.completed")


def test_a_tool_that_is_not_there_for_a_call(farm: Farm) -> None:
    """No tools at all, and the model calls one."""

    def none(loop: Shepherd) -> list[Tool[Any, Any]]:
        return []

    run = farm.record(tools=none)
    farm.check(run, "tool_call.failed", "run.completed")
