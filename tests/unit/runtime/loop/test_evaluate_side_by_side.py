"""Tools of one turn at the same time: recorded as they end, sent as they were asked for."""

from __future__ import annotations

from threading import Barrier, Event, get_ident
from typing import Any

import pytest

from tests.agent import Crash, calls, says
from tests.unit.runtime.evaluations import (
    Add,
    Scripted,
    Sum,
    again,
    events,
    messages,
    on,
    prompt_of,
    tool,
)
from turnledger.ledger import (
    EvaluationSuperseded,
    InvalidInputError,
    Ledger,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
)
from turnledger.projections import ReducerContext
from turnledger.runtime import (
    DeadlineExceededError,
    PromptEvaluationError,
    Session,
    ToolContext,
    ToolInvoked,
    VisibilityExpansionRequired,
)
from turnledger.runtime.agent.visibility import SectionVisibility

STORES = ["memory", "sqlite"]

THREE = calls(*((name, "add", f'{{"n": {n}}}') for n, name in enumerate("abc")))
SCRIPT = [THREE, says("done")]
PATIENCE = 30


class InOrder:
    """Handlers that end in a given order, each when the one before it is recorded."""

    def __init__(self, session: Session, order: str) -> None:
        self.order = order
        self.together = Barrier(len(order))
        self.recorded = {name: Event() for name in order}
        self.seen: dict[str, tuple[Any, ...]] = {}
        self.threads: set[int] = set()
        session.journal.on_commit(lambda before, now: self.note(now.run))

    def note(self, run: Any) -> None:
        for call in run.tools.calls:
            if call.is_over:
                self.recorded[call.call_id].set()

    def __call__(self, params: Add, *, context: ToolContext) -> str:
        self.threads.add(get_ident())
        self.together.wait(PATIENCE)
        place = self.order.index(context.call_id)
        if place:
            assert self.recorded[self.order[place - 1]].wait(PATIENCE)
        context.session[Sum].append(Sum(params.n))
        self.seen[context.call_id] = context.session[Sum].all()
        return f"{context.call_id} is done"


def test_they_are_recorded_as_they_end_and_sent_as_they_were_asked_for(ledger: Ledger) -> None:
    """Each has its own durable start and result; each sees its own changes only."""
    session = on(ledger)
    handler = InOrder(session, "cab")
    adapter = Scripted(SCRIPT, parallel_tools=3)
    adapter.evaluate(prompt_of(tool(handler)), session=session)
    assert [event.call_id for event in events(session, ToolCallStarted)] == ["a", "b", "c"]
    assert [event.call_id for event in events(session, ToolCallCompleted)] == ["c", "a", "b"]
    assert [said.tool_call_id for said in messages(session)[2:5]] == ["c", "a", "b"]
    assert [said.sequence for said in messages(session)] == [0, 1, 2, 3, 4, 5]
    sent: Any = adapter.requests[1].turns[-1].blocks
    assert [block.call_id for block in sent] == ["a", "b", "c"]
    assert [block.content for block in sent] == ["a is done", "b is done", "c is done"]
    assert handler.seen == {"a": (Sum(0),), "b": (Sum(1),), "c": (Sum(2),)}
    assert session[Sum].all() == (Sum(2), Sum(0), Sum(1))
    assert len(handler.threads) == 3
    assert get_ident() not in handler.threads


def test_no_more_run_at_a_time_than_are_allowed(ledger: Ledger) -> None:
    """The next one starts when one has ended."""
    running, most = 0, 0
    pair = Barrier(2)

    def count(params: Add, *, context: ToolContext) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        pair.wait(PATIENCE)
        running -= 1
        return "ok"

    four = calls(*((name, "add") for name in "abcd"))
    session = on(ledger)
    adapter = Scripted([four, says("done")], parallel_tools=2)
    adapter.evaluate(prompt_of(tool(count)), session=session)
    assert most == 2
    assert len(events(session, ToolCallCompleted)) == 4


def test_adapters_run_at_least_one_tool_at_a_time() -> None:
    """None at a time would be none ever."""
    with pytest.raises(InvalidInputError, match="parallel_tools"):
        Scripted([], parallel_tools=0)


def test_calls_that_cannot_be_made_are_told_without_a_thread(ledger: Ledger) -> None:
    """An unknown tool and wrong arguments beside one that runs."""
    session = on(ledger)
    script = [calls(("a", "none"), ("b", "add", "[]"), ("c", "add", '{"n": 3}')), says("done")]
    Scripted(script, parallel_tools=3).evaluate(prompt_of(tool()), session=session)
    assert [event.call_id for event in events(session, ToolCallStarted)] == ["c"]
    assert [event.call_id for event in events(session, ToolCallFailed)] == ["a", "b"]
    assert session[Sum].all() == (Sum(3),)


def test_changes_that_do_not_fit_together_fail_the_later_call(ledger: Ledger) -> None:
    """The reducer took each alone; what another did first stands."""

    def only_one(
        values: tuple[Sum, ...], event: Add, *, context: ReducerContext
    ) -> tuple[Sum, ...]:
        if values:
            raise ValueError("there is one already")
        return (Sum(event.n),)

    both = Barrier(2)

    def apply(params: Add, *, context: ToolContext) -> str:
        context.session[Sum].apply(params)
        both.wait(PATIENCE)
        return "ok"

    session = on(ledger)
    session[Sum].register(Add, only_one)
    script = [calls(("a", "add", '{"n": 1}'), ("b", "add", '{"n": 2}')), says("done")]
    Scripted(script, parallel_tools=2).evaluate(prompt_of(tool(apply)), session=session)
    (done,), (failed,) = events(session, ToolCallCompleted), events(session, ToolCallFailed)
    assert {done.call_id, failed.call_id} == {"a", "b"}
    assert "there is one already" in failed.error_message
    assert session[Sum].all() == (Sum({"a": 1, "b": 2}[done.call_id]),)


def test_a_listener_may_refuse_one_of_them(ledger: Ledger) -> None:
    """The others' changes stand."""
    session = on(ledger)

    def refuse(event: ToolInvoked) -> None:
        if event.call_id == "b":
            raise PermissionError("not b")

    session.bus.subscribe(ToolInvoked, refuse)
    Scripted(SCRIPT, parallel_tools=3).evaluate(prompt_of(tool()), session=session)
    assert sorted(one.total for one in session[Sum].all()) == [0, 2]


# --- one of them ends it -----------------------------------------------------------------------


def _ending(error: BaseException) -> Any:
    """A handler of which "b" ends everything while "a" and "c" are at work."""
    together = Barrier(3)

    def handler(params: Add, *, context: ToolContext) -> str:
        together.wait(PATIENCE)
        if context.call_id == "b":
            raise error
        context.session[Sum].append(Sum(params.n))
        return "ok"

    return handler


def test_sections_are_opened_when_the_others_have_ended(ledger: Ledger) -> None:
    """X20: what came of them is recorded, the evaluation is superseded once."""
    session = on(ledger)
    wanted = VisibilityExpansionRequired({"task": SectionVisibility.FULL}, reason="look")
    with pytest.raises(VisibilityExpansionRequired) as caught:
        Scripted(SCRIPT, parallel_tools=3).evaluate(
            prompt_of(tool(_ending(wanted))), session=session
        )
    assert caught.value is wanted
    session.commit()
    assert len(events(session, EvaluationSuperseded)) == 1
    assert {event.call_id for event in events(session, ToolCallCompleted)} == {"a", "c"}
    assert session.state.tools.pending() == ()
    assert sorted(one.total for one in again(session)[Sum].all()) == [0, 2]


def test_two_that_ask_to_open_sections_supersede_once(ledger: Ledger) -> None:
    """It counts as one expansion."""
    together = Barrier(3)

    def open_it(params: Add, *, context: ToolContext) -> str:
        together.wait(PATIENCE)
        raise VisibilityExpansionRequired({"task": SectionVisibility.FULL})

    session = on(ledger)
    with pytest.raises(VisibilityExpansionRequired):
        Scripted(SCRIPT, parallel_tools=3).evaluate(prompt_of(tool(open_it)), session=session)
    assert session.journal.progress.expansions == 1


def test_a_deadline_ends_it_when_the_others_have_ended(ledger: Ledger) -> None:
    """S4-15: their results are on disk, and the session goes on from there."""
    session = on(ledger)
    prompt = prompt_of(tool(_ending(DeadlineExceededError("too slow"))))
    with pytest.raises(PromptEvaluationError, match="too slow") as caught:
        Scripted(SCRIPT, parallel_tools=3).evaluate(prompt, session=session)
    assert caught.value.phase == "tool"
    assert {event.call_id for event in events(session, ToolCallCompleted)} == {"a", "c"}
    last = Scripted(SCRIPT)
    assert last.evaluate(prompt, session=again(session), resume=True).text == "done"


def test_an_interrupt_in_one_leaves_only_that_one_in_doubt(ledger: Ledger) -> None:
    """What the others came to is on disk: they are not run again."""
    session = on(ledger)
    with pytest.raises(Crash):
        Scripted(SCRIPT, parallel_tools=3).evaluate(
            prompt_of(tool(_ending(Crash()))), session=session
        )
    other = again(session)
    assert [call.call_id for call in other.state.tools.pending()] == ["b"]
    ran: list[tuple[str, bool]] = []

    def note(params: Add, *, context: ToolContext) -> str:
        ran.append((context.call_id, context.is_resume))
        return "ok"

    adapter = Scripted(SCRIPT, parallel_tools=3)
    assert adapter.evaluate(prompt_of(tool(note)), session=other, resume=True).text == "done"
    assert ran == [("b", True)]


def test_one_that_takes_too_long_does_not_hold_up_the_others(ledger: Ledger) -> None:
    """It failed, and the turn goes on."""
    stuck = Event()

    def slow(params: Add, *, context: ToolContext) -> str:
        stuck.wait(PATIENCE)
        return "late"

    session = on(ledger)
    prompt = prompt_of(tool(), tool(slow, "slow", timeout=0.05))
    script = [calls(("a", "slow", '{"n": 1}'), ("b", "add", '{"n": 2}')), says("done")]
    response = Scripted(script, parallel_tools=2).evaluate(prompt, session=session)
    stuck.set()
    assert response.text == "done"
    (failed,) = events(session, ToolCallFailed)
    assert (failed.call_id, failed.error_type) == ("a", "ToolTimeout")
    late = next(event for event in response.tool_results if event.call_id == "a")
    assert late.params == Add(1)
