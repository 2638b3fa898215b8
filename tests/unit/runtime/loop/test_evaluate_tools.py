"""Tools in an evaluation: what becomes of their arguments, results, failures and changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent import calls, says
from tests.unit.runtime.evaluations import (
    Add,
    Heard,
    Scripted,
    Sum,
    adding,
    again,
    events,
    messages,
    prompt_of,
    run,
    told,
    tool,
)
from turnledger.ledger import InnerMessage, SliceEventApplied, ToolCallFailed
from turnledger.projections import ReducerContext, get_pending_tool_calls
from turnledger.runtime import (
    DeadlineExceededError,
    PromptEvaluationError,
    Session,
    ToolContext,
    ToolInvoked,
    ToolResult,
    enable_inner_message_recording,
)
from turnledger.runtime.agent.tools import RejectedToolParams

# --- arguments -------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["", "{}", "  ", None])
def test_absent_arguments_are_an_empty_object(absent: Any) -> None:
    """S4-13: the handler gets its defaults."""
    session = run(adding, calls(("c1", "add", absent)))
    assert session[Sum].all() == (Sum(0),)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("[1]", "JSON object, not a list"),
        ('"x"', "JSON object, not text"),
        ("null", "JSON object, not null"),
        ("{", "JSON"),
        ('{"n": "two"}', "n"),
        ('{"m": 1}', "m"),
    ],
)
def test_arguments_that_do_not_fit_are_a_failed_result(arguments: str, why: str) -> None:
    """S4-14: told with the raw arguments and the error; the handler is not called."""
    session = Session()
    heard = Heard().listen(session.bus)
    run(adding, calls(("c1", "add", arguments)), session=session)
    (invoked,) = heard.of(ToolInvoked)
    assert isinstance(invoked.params, RejectedToolParams)
    assert invoked.params.raw_arguments == arguments
    assert why in invoked.params.error
    assert not invoked.result.success
    assert session[Sum].all() == ()
    assert told(session) == [invoked.params.error]
    (failed,) = events(session, ToolCallFailed)
    assert failed.error_type == "InvalidToolCall"


def test_an_unknown_tool_is_a_failed_result_that_names_the_known_ones() -> None:
    """S4-6: what a model calls is looked up by name."""
    session = run(adding, calls(("c1", "subtract", "{}")))
    assert told(session) == ["There is no tool 'subtract'. The tools are: add."]


# --- what a handler does -----------------------------------------------------------------


def test_a_handler_has_all_that_it_may_use() -> None:
    """S4-22, S0-19: prompt, rendered prompt, adapter, session, bus, deadline, call id."""
    found: list[ToolContext] = []

    def look(params: Add, *, context: ToolContext) -> str:
        found.append(context)
        return "ok"

    session, prompt = Session(), prompt_of(tool(look))
    adapter = Scripted([calls(("c1", "add")), says("done")])
    adapter.evaluate(prompt, session=session)
    (context,) = found
    assert context.prompt is prompt
    assert context.rendered_prompt is not None
    assert "Add it up." in context.rendered_prompt.text
    assert context.adapter is adapter
    assert context.session is session
    assert context.event_bus is session.bus
    assert (context.call_id, context.is_resume, context.deadline) == ("c1", False, None)


def test_an_exception_is_a_failed_result_and_leaves_no_trace() -> None:
    """S4-15, S2-17: the model is told, the evaluation goes on, the state is as before."""

    def fail(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].append(Sum(1))
        assert context.session[Sum].all() == (Sum(1),)
        raise LookupError("no such sum")

    session = run(fail)
    assert told(session) == ["Tool 'add' failed: LookupError: no such sum"]
    assert session[Sum].all() == ()
    assert events(session, SliceEventApplied) == []


def test_a_result_without_success_is_failed_and_not_pending() -> None:
    """X23: the call's status says so, and what the tool changed did not happen."""

    def refuse(params: Add, *, context: ToolContext) -> ToolResult[int]:
        context.session[Sum].append(Sum(1))
        return ToolResult("not today", success=False)

    session = Session()
    enable_inner_message_recording(session)
    run(refuse, session=session)
    assert told(session) == ["not today"]
    assert session[Sum].all() == ()
    (call,) = session[InnerMessage].all()[1].tool_calls
    assert call.status == "failed"
    assert get_pending_tool_calls(session, messages(session)[0].evaluation_id) == ()


def test_a_deadline_that_a_handler_notices_ends_the_evaluation() -> None:
    """S4-15: in the phase "tool"; the call failed, and the rest can be resumed."""

    def late(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].append(Sum(1))
        raise DeadlineExceededError("too slow")

    session = Session()
    prompt = prompt_of(tool(late))
    with pytest.raises(PromptEvaluationError, match="too slow") as caught:
        Scripted([calls(("c1", "add"))]).evaluate(prompt, session=session)
    assert caught.value.phase == "tool"
    assert session[Sum].all() == ()
    other = again(session)
    answer = Scripted([calls(("c1", "add")), says("late")])
    assert answer.evaluate(prompt, session=other, resume=True).text == "late"
    assert "too slow" in told(other)[0]


@pytest.mark.parametrize("value", [object(), {1: {2}}, float("nan"), "\ud800"])
def test_a_result_that_is_no_json_is_a_failed_result(value: Any) -> None:
    """It says what is wrong, and what the tool changed did not happen."""

    def odd(params: Add, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Sum].append(Sum(1))
        return ToolResult("look", value=value)

    session = run(odd)
    assert told(session)[0].startswith("Tool 'add' failed: its result is not JSON")
    assert session[Sum].all() == ()


def test_a_result_that_is_too_large_for_the_ledger_is_a_failed_result() -> None:
    """It names the limit; what the tool changed did not happen."""

    def large(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].append(Sum(1))
        return "x" * 9_000_000

    session = run(large)
    assert "can't be recorded" in told(session)[0]
    assert "max_event_bytes" in told(session)[0]
    assert session[Sum].all() == ()
    (failed,) = events(session, ToolCallFailed)
    assert failed.error_type == "LimitExceededError"


def test_an_exception_that_says_too_much_is_cut() -> None:
    """It would not fit in the ledger."""

    def fail(params: Add, *, context: ToolContext) -> str:
        raise ValueError("y" * 9_000_000)

    assert len(told(run(fail))[0]) < 30_000


def test_a_reducer_that_raises_in_a_tool_fails_the_call() -> None:
    """And nothing of it is recorded."""

    def broken(values: tuple[Sum, ...], event: Add, *, context: ReducerContext) -> tuple[Sum, ...]:
        raise ZeroDivisionError("by nothing")

    def apply(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].append(Sum(1))
        context.session[Sum].apply(params)
        return "never"

    session = Session()
    session[Sum].register(Add, broken)
    run(apply, session=session)
    assert "by nothing" in told(session)[0]
    assert session[Sum].all() == ()


def test_a_tool_that_takes_too_long_is_a_failed_result() -> None:
    """It says that the outcome is unknown; what the handler does later changes nothing."""
    from threading import Event

    go_on, over = Event(), Event()
    refused: list[str] = []

    def slow(params: Add, *, context: ToolContext) -> str:
        go_on.wait(30)
        try:
            context.session[Sum].append(Sum(1))
        except Exception as error:
            refused.append(type(error).__name__)
        over.set()
        return "late"

    session = Session()
    prompt = prompt_of(tool(slow, timeout=0.05))
    Scripted([calls(("c1", "add")), says("done")]).evaluate(prompt, session=session)
    go_on.set()
    assert over.wait(30)
    assert "did not answer within 0.05 seconds" in told(session)[0]
    assert (session[Sum].all(), refused) == ((), ["ScopeClosedError"])
    assert events(session, ToolCallFailed)[0].error_type == "ToolTimeout"
