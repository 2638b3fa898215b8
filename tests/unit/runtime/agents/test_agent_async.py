"""`Agent.arun`, `stream`, `on_event` and decisions: the same run, heard and awaited."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from threading import Event
from typing import Any

import pytest

from tests.agent import calls, says
from turnledger import Agent, RunEnded, TextDelta, ToolEnded, ToolStarted, tool
from turnledger.ledger import InvalidInputError, Ledger, new_run_id
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.agent.run_control import AT_WORK, PERMITS, RunControl

PAY = calls(("c1", "pay", '{"euros": 5}'))
LATER = calls(("c1", "pay_later", '{"euros": 5}'))


@tool
def pay(euros: int) -> str:
    """Pay."""
    return f"Paid {euros}."


@tool
async def pay_later(euros: int) -> str:
    """Pay without waiting."""
    await asyncio.sleep(0)
    return f"Paid {euros} on {type(asyncio.get_running_loop()).__name__}."


def payer(*replies: Any, ledger: Ledger | None = None, **more: Any) -> Agent[str, str]:
    tools = more.pop("tools", [pay, pay_later])
    return Agent("payer", model=replies, instructions="Pay.", tools=tools, ledger=ledger, **more)


@pytest.mark.parametrize("asked", [PAY, LATER])
def test_arun_gives_what_run_gives(asked: Any, ledger: Ledger) -> None:
    """Awaited or not, a run is the same record with the same result."""
    agent = payer(asked, says("Done."), ledger=ledger)
    awaited = asyncio.run(agent.arun("Pay 5.", tags={"way": "arun"}))
    called = agent.run("Pay 5.")
    assert awaited.output == called.output == "Done."
    tags = [[record.tag for record in ledger.read(result.run_id)] for result in (awaited, called)]
    assert tags[0] == tags[1]
    assert ledger.run(awaited.run_id).tags == {"way": "arun"}
    assert agent.replay(awaited.run_id).ok


def test_a_misspelled_argument_is_not_ignored(ledger: Ledger) -> None:
    """`arun` and `stream` refuse a keyword that `run` does not take."""
    agent = payer(says("ok"), ledger=ledger)
    with pytest.raises(TypeError, match="'leger'"):
        asyncio.run(agent.arun("Go.", leger="x.db"))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'runid'"):
        agent.stream("Go.", runid="x")  # type: ignore[call-arg]


def test_a_stream_tells_text_and_tools_and_ends_with_the_result(ledger: Ledger) -> None:
    """Events come in the order in which things happen, the result last."""

    async def events() -> list[Any]:
        return [event async for event in payer(PAY, says("All done."), ledger=ledger).stream("Go.")]

    *before, end = asyncio.run(events())
    assert before == [
        ToolStarted("c1", "pay", '{"euros": 5}'),
        ToolEnded("c1", "pay", "Paid 5.", True),
        TextDelta("All"),
        TextDelta(" done."),
    ]
    assert isinstance(end, RunEnded)
    assert end.result.output == "All done."


def test_on_event_hears_the_same_of_a_plain_run(ledger: Ledger) -> None:
    """`run(on_event=)` is told what a stream yields."""
    heard: list[Any] = []
    result = payer(PAY, says("ok"), ledger=ledger).run("Go.", on_event=heard.append)
    assert [type(one) for one in heard] == [ToolStarted, ToolEnded, TextDelta, RunEnded]
    assert heard[-1].result is result


def test_leaving_a_stream_early_leaves_a_run_that_goes_on(ledger: Ledger) -> None:
    """Closing a stream cancels the run; `arecover` straight after it completes it."""
    went = Event()

    @tool
    async def wait() -> str:
        """Wait."""
        if not went.is_set():
            went.set()
            await asyncio.Event().wait()
        return "waited"

    agent = payer(calls(("c1", "wait", "{}")), says("Done."), ledger=ledger, tools=[wait])
    run = new_run_id()

    async def leave() -> str:
        async with aclosing(agent.stream("Go.", run_id=run)) as events:
            async for event in events:
                assert isinstance(event, ToolStarted)
                await asyncio.to_thread(went.wait)
                break
        assert ledger.worker_of(run) is None
        return (await agent.arecover(run)).output

    assert asyncio.run(leave()) == "Done."
    assert agent.replay(run).ok


def test_a_forked_process_waits_for_nothing_of_its_parents(ledger: Ledger) -> None:
    """Neither for the event loop of async tools, nor for runs that are at work in the parent."""
    payer(LATER, says("Done."), ledger=ledger).run("Go.")  # begins the background loop
    holders = [RunControl() for _ in range(AT_WORK)]
    for one in holders:
        PERMITS.acquire(one)
    child = os.fork()
    if not child:  # pragma: no cover - another process
        signal.alarm(30)
        try:
            agent = payer(LATER, says("Done."))
            texts = [agent.run("Go.").text, asyncio.run(agent.arun("Go.")).text]
            os._exit(0 if texts == ["Done.", "Done."] else 1)
        finally:
            os._exit(2)
    for one in holders:
        PERMITS.release(one)
    assert os.waitpid(child, 0)[1] == 0


def test_run_where_an_event_loop_is_running_names_arun(ledger: Ledger) -> None:
    """With async tools a synchronous run would stop the loop: the error says what to call."""

    async def wrong() -> None:
        payer(says("x"), ledger=ledger).run("Go.")

    with pytest.raises(InvalidInputError, match="arun"):
        asyncio.run(wrong())
    assert not list(ledger.runs())


@tool(needs_approval=lambda euros: euros > 100)
def transfer(euros: int) -> str:
    """Transfer money."""
    return f"Transferred {euros}."


ASKED = calls(("small", "transfer", '{"euros": 5}'), ("large", "transfer", '{"euros": 500}'))


def waiting(ledger: Ledger) -> tuple[Agent[str, str], Any]:
    agent = payer(ASKED, says("Done."), ledger=ledger, tools=[transfer])
    with pytest.raises(DecisionRequiredError) as waits:
        agent.run("Go.")
    assert waits.value.call_ids == ("large",)
    assert "agent.approve" in waits.value.__notes__[0]
    return agent, waits.value.run_id


def results(agent: Agent[str, str], run: Any) -> list[str]:
    return [one.content for one in agent.recover(run).messages if one.role == "tool"]


def test_an_approved_call_runs_when_the_run_is_recovered(ledger: Ledger) -> None:
    """A run that waits raises, and goes on after the decision; small amounts ran before."""
    agent, run = waiting(ledger)
    agent.approve(run, "large", by="ann")
    assert results(agent, run) == ["Transferred 5.", "Transferred 500."]
    assert agent.replay(run).ok


def test_a_denied_call_never_runs(ledger: Ledger) -> None:
    """The model is told the person's words."""
    agent, run = waiting(ledger)
    agent.deny(run, "large", "Too much.")
    assert results(agent, run) == ["Transferred 5.", "Too much."]


def test_an_edited_call_runs_with_the_persons_arguments(ledger: Ledger) -> None:
    """The handler gets them, the model is told so, and listeners hear of what runs."""
    agent, run = waiting(ledger)
    agent.edit(run, "large", {"euros": 50})
    heard: list[Any] = []
    result = agent.recover(run, on_event=heard.append)
    small, edited = [one.content for one in result.messages if one.role == "tool"]
    started = [one.arguments for one in heard if isinstance(one, ToolStarted)]
    assert started == ['{"euros":50}']
    assert small == "Transferred 5."
    assert edited.endswith("Transferred 50.")
    assert '{"euros":50}' in edited


def test_a_stream_ends_with_the_decision_that_the_run_waits_for(ledger: Ledger) -> None:
    """`stream` and `arun` raise what `run` raises."""
    agent = payer(ASKED, says("Done."), ledger=ledger, tools=[transfer])

    async def heard() -> list[Any]:
        found: list[Any] = []

        async def follow() -> None:
            async for event in agent.stream("Go."):
                found.append(event)

        with pytest.raises(DecisionRequiredError):
            await follow()
        with pytest.raises(DecisionRequiredError):
            await agent.arun("Go.")
        return found

    assert [type(one) for one in asyncio.run(heard())] == [ToolStarted, ToolEnded]
