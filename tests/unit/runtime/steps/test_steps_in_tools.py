"""Steps in an agent's tools: inner steps of the call, in the agent's own run."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, calls, says
from turnledger.ledger import ANY, Ledger, ToolCallDecided, ToolCallStarted
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.agent.tools.function_tool import tool
from turnledger.runtime.agents.agent import Agent
from turnledger.runtime.steps import step

RUN = UUID("0195f5a0-0000-7000-8000-00000000abcd")


class Shop:
    """An agent whose tool has two steps, in a ledger of its own."""

    def __init__(self, **settings: Any) -> None:
        self.ledger = Ledger.open("memory://")
        self.done: list[Any] = []
        self.dies_in = ""
        self.settings = settings

    def agent(self, *, swallows: bool = False) -> Agent[str, str]:
        @step
        def look(order: int) -> int:
            self.done.append("look")
            return order * 10

        @step(on_interrupt="ask")
        def pay(euros: int) -> str:
            self.done.append(euros)
            if self.dies_in == "pay":
                raise Crash
            return f"paid {euros}"

        @tool
        def credit(order: int) -> str:
            """Credit an order."""
            self.done.append("credit")
            euros = look(order)
            try:
                text = pay(euros)
            except Exception:
                if not swallows:
                    raise
                text = "something went wrong"
            if self.dies_in == "credit":
                raise Crash
            return text

        @tool
        async def credit_later(order: int) -> str:
            """Credit an order."""
            await asyncio.sleep(0)
            return credit(order)

        def model(request: Any) -> Any:
            if request.turn == 1:
                name = "credit_later" if self.settings.get("later") else "credit"
                return calls(("c1", name, '{"order": 4}'))
            return says("done")

        tools = [credit, credit_later]
        return Agent("shop/credit", model=model, instructions="Credit.", tools=tools)

    def did(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def started(self) -> list[tuple[str, str]]:
        events = [record.event for record in self.ledger.read(RUN)]
        return [(e.call_id, e.parent) for e in events if isinstance(e, ToolCallStarted)]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def shop(request: pytest.FixtureRequest) -> Any:
    made = Shop(later=request.param)
    yield made
    made.ledger.close()


def test_steps_of_a_tool_are_in_its_run(shop: Shop) -> None:
    """They are inner steps of the call; the run replays, and calls neither tool nor step."""
    agent = shop.agent()
    assert agent.run("go", ledger=shop.ledger, run_id=RUN).text == "done"
    assert shop.started() == [("c1", ""), ("c1/look#1", "c1"), ("c1/pay#1", "c1")]
    shop.did()
    assert agent.replay(RUN, ledger=shop.ledger).check().ok
    assert shop.did() == []


def test_a_tool_that_is_tried_again_takes_its_steps_that_ended(shop: Shop) -> None:
    """The payment of the first attempt is not repeated, and the run replays."""
    shop.dies_in = "credit"
    with pytest.raises(Crash):
        shop.agent().run("go", ledger=shop.ledger, run_id=RUN)
    assert shop.did() == ["credit", "look", 40]
    shop.dies_in = ""
    assert shop.agent().recover(RUN, ledger=shop.ledger).text == "done"
    assert shop.did() == ["credit"]
    assert shop.agent().replay(RUN, ledger=shop.ledger).check().ok


@pytest.mark.parametrize("swallows", [False, True])
def test_a_step_in_doubt_makes_the_agents_run_wait(shop: Shop, swallows: bool) -> None:
    """Whatever the handler makes of it: its call is in doubt, not failed, until it is decided."""
    shop.dies_in = "pay"
    with pytest.raises(Crash):
        shop.agent().run("go", ledger=shop.ledger, run_id=RUN)
    assert shop.did() == ["credit", "look", 40]
    shop.dies_in = ""
    agent = shop.agent(swallows=swallows)
    with pytest.raises(DecisionRequiredError) as waits:
        agent.recover(RUN, ledger=shop.ledger)
    assert waits.value.call_ids == ("c1/pay#1",)
    assert shop.ledger.run(RUN).status == "waiting"
    assert shop.did() == ["credit"]
    decided = ToolCallDecided(
        call_id="c1/pay#1", decision="completed", value="paid by hand", attempt=1
    )
    shop.ledger.append(RUN, decided, ANY)
    result = agent.recover(RUN, ledger=shop.ledger)
    assert shop.did() == ["credit"]
    assert [m.content for m in result.messages if m.role == "tool"] == ["paid by hand"]
    assert agent.replay(RUN, ledger=shop.ledger).check().ok


def test_steps_do_not_count_as_turns_or_tool_calls(shop: Shop) -> None:
    """Limits and checkpoints are about what the model asked for."""
    result = shop.agent().run("go", ledger=shop.ledger, run_id=RUN)
    assert result.session.journal.progress.tool_calls_completed == 1


def test_calls_with_the_same_id_have_steps_of_their_own() -> None:
    """Some servers number the calls of every reply from 1: a recovery must not mix them up."""
    ledger, done, crashes = Ledger.open("memory://"), list[int](), [False, True]

    @step
    def pay(euros: int) -> int:
        done.append(euros)
        return len(done)

    @tool
    def credit(euros: int) -> str:
        """Credit some euros."""
        receipt = pay(euros)
        if receipt == 2 and crashes.pop():
            raise Crash
        return f"receipt {receipt}"

    def model(request: Any) -> Any:
        return calls(("c1", "credit", '{"euros": 4}')) if request.turn <= 2 else says("done")

    agent = Agent("shop/credit", model=model, instructions="Credit.", tools=[credit])
    with pytest.raises(Crash):
        agent.run("go", ledger=ledger, run_id=RUN)
    result = agent.recover(RUN, ledger=ledger)
    told = [message.content for message in result.messages if message.role == "tool"]
    assert (told, done) == (["receipt 1", "receipt 2"], [4, 4])
    assert agent.replay(RUN, ledger=ledger).check().ok
    ledger.close()
