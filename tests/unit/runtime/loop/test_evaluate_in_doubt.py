"""Calls that were started and not heard of: recorded, then run again, told, or asked about."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.agent import Crash, calls, says
from tests.unit.runtime.evaluations import (
    Add,
    Dying,
    Scripted,
    Sum,
    adding,
    again,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import (
    ANY,
    Ledger,
    RunWaiting,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.runtime import DecisionRequiredError, Session, Tool, ToolContext

STORES = ["memory", "sqlite"]

PAY = [calls(("p", "add", '{"n": 5}')), says("paid")]


def killed(ledger: Ledger, policy: Any, interrupt: type[BaseException] = Crash) -> Session:
    """A session whose only tool was killed while it ran."""

    def die(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].append(Sum(-1))
        raise interrupt

    session = on(ledger)
    with pytest.raises(interrupt):
        Scripted(PAY).evaluate(prompt_of(tool(die, on_interrupt=policy)), session=session)
    return session


def resumed(session: Session, handler: Any, policy: Any) -> str | None:
    prompt = prompt_of(tool(handler, on_interrupt=policy))
    return Scripted(PAY).evaluate(prompt, session=session, resume=True).text


def decide(session: Session, what: Any, **more: Any) -> None:
    """What somebody else says, past the session."""
    decision = ToolCallDecided(call_id="p", decision=what, **more)
    session.journal.ledger.append(session.journal.run_id, decision, ANY)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interrupt_leaves_the_call_in_doubt(
    ledger: Ledger, interrupt: type[BaseException]
) -> None:
    """Never failed, and what the handler changed is gone."""
    session = killed(ledger, "retry", interrupt)
    assert events(session, ToolCallFailed, ToolCallCompleted) == []
    (call,) = again(session).state.tools.pending()
    assert (call.status, call.attempts) == ("started", 1)
    assert again(session)[Sum].all() == ()


def test_retry_runs_it_again_with_the_same_id(ledger: Ledger) -> None:
    """The doubt is recorded before it is started again; `is_resume` is true."""
    session, handler = killed(ledger, "retry"), Dying()
    other = again(session)
    assert resumed(other, handler, "retry") == "paid"
    assert handler.ran == [("p", True)]
    assert other[Sum].all() == (Sum(5),)
    told = events(other, ToolCallStarted, ToolCallInDoubt, ToolCallCompleted)
    names = [(type(event).__name__, event.attempt) for event in told]
    assert names == [
        ("ToolCallStarted", 1),
        ("ToolCallInDoubt", 1),
        ("ToolCallStarted", 2),
        ("ToolCallCompleted", 2),
    ]


def test_the_doubt_is_on_disk_before_the_handler_runs_again(ledger: Ledger) -> None:
    """Nothing is repeated silently, however often it dies."""
    session = killed(ledger, "retry")

    def die(seen: list[int], params: Add, *, context: ToolContext) -> str:
        seen.append(len(events(session, ToolCallInDoubt)))
        raise Crash

    for times in range(1, 4):
        seen: list[int] = []

        with pytest.raises(Crash):
            resumed(again(session), partial(die, seen), "retry")
        assert seen == [times]
    assert resumed(again(session), adding, "retry") == "paid"
    assert [event.attempt for event in events(session, ToolCallStarted)] == [1, 2, 3, 4, 5]


def test_fail_tells_the_model_that_the_outcome_is_unknown(ledger: Ledger) -> None:
    """It is not run again."""
    session, handler = killed(ledger, "fail"), Dying()
    other = again(session)
    assert resumed(other, handler, "fail") == "paid"
    assert handler.ran == []
    (failed,) = events(other, ToolCallFailed)
    assert (failed.error_type, failed.attempt) == ("OutcomeUnknown", 1)
    assert "outcome of this call is unknown" in messages(other)[2].content
    assert len(events(other, ToolCallInDoubt)) == 1


def test_ask_waits_for_a_person(ledger: Ledger) -> None:
    """However often it is resumed: it is recorded once that the run waits, and what for."""
    session, handler = killed(ledger, "ask"), Dying()
    for one in (session, session, again(session)):
        with pytest.raises(DecisionRequiredError) as caught:
            resumed(one, handler, "ask")
        assert caught.value.call_ids == ("p",)
    assert handler.ran == []
    assert [event.call_ids for event in events(session, RunWaiting)] == [("p",)]
    assert len(events(session, ToolCallInDoubt)) == 1


@pytest.mark.parametrize("same", [True, False])
def test_a_person_decides_that_it_happened(ledger: Ledger, same: bool) -> None:
    """Their result is the call's, in the same session or another."""
    session, handler = killed(ledger, "ask"), Dying()
    with pytest.raises(DecisionRequiredError):
        resumed(session, handler, "ask")
    decide(session, "completed", value={"receipt": 7}, decided_by="ann")
    other = session if same else again(session)
    assert resumed(other, handler, "ask") == "paid"
    assert handler.ran == []
    (completed,) = events(other, ToolCallCompleted)
    assert (completed.value, completed.attempt) == ({"receipt": 7}, 1)
    assert messages(other)[2].content == '{"receipt":7}'


def test_a_person_decides_that_it_failed(ledger: Ledger) -> None:
    """Their words are what the model is told."""
    session, handler = killed(ledger, "ask"), Dying()
    with pytest.raises(DecisionRequiredError):
        resumed(session, handler, "ask")
    decide(session, "failed", text="the bank refused")
    assert resumed(again(session), handler, "ask") == "paid"
    assert handler.ran == []
    (failed,) = events(session, ToolCallFailed)
    assert (failed.error_type, failed.error_message) == ("DecidedFailed", "the bank refused")
    assert messages(session)[2].content == "the bank refused"


def test_a_person_decides_that_it_is_tried_again(ledger: Ledger) -> None:
    """Once: killed again, it waits again."""
    session, handler = killed(ledger, "ask"), Dying("p")
    with pytest.raises(DecisionRequiredError):
        resumed(session, handler, "ask")
    decide(session, "retry")
    with pytest.raises(Crash):
        resumed(again(session), handler, "ask")
    with pytest.raises(DecisionRequiredError):
        resumed(again(session), handler, "ask")
    assert handler.ran == [("p", True)]
    handler.dies_in = set()
    decide(session, "retry")
    assert resumed(again(session), handler, "ask") == "paid"
    assert handler.ran == [("p", True), ("p", True)]


def test_a_decision_can_come_before_anybody_waits(ledger: Ledger) -> None:
    """It is about the call that was started last, and is not asked for again."""
    session, handler = killed(ledger, "ask"), Dying()
    decide(session, "completed", text="seen on the statement")
    assert resumed(again(session), handler, "ask") == "paid"
    assert handler.ran == []
    assert messages(session)[2].content == "seen on the statement"


def test_other_calls_of_the_turn_run_before_the_loop_waits(ledger: Ledger) -> None:
    """What can be done is done; the results are sent in the order of the calls."""
    handler = Dying("p")
    ask: Tool[Any, Any] = tool(handler, on_interrupt="ask")
    free: Tool[Any, Any] = tool(handler, "free")
    prompt = prompt_of(ask, free)
    script = [calls(("p", "add", '{"n": 1}'), ("f", "free", '{"n": 2}')), says("done")]
    session = on(ledger)
    with pytest.raises(Crash):
        Scripted(script).evaluate(prompt, session=session)
    other = again(session)
    with pytest.raises(DecisionRequiredError):
        Scripted(script).evaluate(prompt, session=other, resume=True)
    assert handler.ran == [("p", False), ("f", True)]
    assert other[Sum].all() == (Sum(2),)
    decide(session, "completed", text="it did")
    last = Scripted(script)
    last.evaluate(prompt, session=again(session), resume=True)
    results = [block.call_id for block in last.requests[0].turns[-1].blocks]  # type: ignore[union-attr]
    assert results == ["p", "f"]
