"""pydantic-ai agents in a run: parallel and inner agents, retries, toolsets, capabilities."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    ProcessHistory,
    durable_operation,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent, ToolReturnPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import DynamicToolset, FunctionToolset

import turnledger
from tests.frameworks.pydantic_ai.scripted import (
    PAYS,
    Crash,
    Scripted,
    calls,
    events,
    paying,
    run,
    says,
)
from turnledger.ledger import (
    Ledger,
    ModelCalled,
    ToolCallStarted,
    run_id_for,
)
from turnledger.projections import MediaBlock, state_at
from turnledger.pydantic_ai import TurnledgerDurability
from turnledger.runtime.steps import AmbiguousStepError

# --- keys ---


def test_parallel_calls_get_their_own_results(ledger: Ledger) -> None:
    """Calls side by side are known by their ids: a resume in which they end in another order, and
    of which one was interrupted, gives each its own result."""
    both = calls(*(("look", {"order": n}, f"call_{n}") for n in (1, 2, 3)))

    async def live(order: list[int], dies: int, done: list[int], scripted: Scripted) -> str:
        made = scripted.agent()
        before = dict(zip(order, [None, *order], strict=False))
        ended = {n: asyncio.Event() for n in order}

        @made.tool_plain
        async def look(order: int) -> str:
            waits_for = before[order]
            if waits_for is not None and waits_for in ended:
                await ended[waits_for].wait()
            done.append(order)
            ended[order].set()
            if order == dies:
                raise Crash
            return f"order {order}"

        async with run(ledger):
            return str((await made.run("Look.")).output)

    done: list[int] = []
    with pytest.raises(Crash):
        asyncio.run(live([2, 3, 1], 1, done, Scripted(both, says("Done."))))
    assert done == [2, 3, 1]
    scripted = Scripted(both, says("Done."))
    assert asyncio.run(live([1], 0, done, scripted)) == "Done."
    assert done == [2, 3, 1, 1]
    assert scripted.told == ["order 1", "order 2", "order 3"]


def test_repeated_call_ids_are_calls_of_their_own(ledger: Ledger) -> None:
    """Some models use an id again: the second call is performed, and known on a resume."""
    done: list[str] = []

    def both() -> None:
        agent = Agent(TestModel(), capabilities=[TurnledgerDurability()])

        @agent.tool_plain
        def look() -> str:
            done.append("look")
            return "seen"

        with run(ledger):
            agent.run_sync("Look.")
            agent.run_sync("Look.")

    both()
    both()
    assert done == ["look", "look"]
    ids = [one.call_id for one in events(ledger, ToolCallStarted)]
    assert ids == ["look:pyd_ai_tool_call_id__look", "look:pyd_ai_tool_call_id__look~2"]


def test_an_approved_call_is_a_second_step(ledger: Ledger) -> None:
    """A tool that asks for approval and its call after it are two steps of one call id."""
    done: list[int] = []

    def both() -> str:
        scripted = Scripted(PAYS, says("Done."))
        agent = scripted.agent(output_type=[str, DeferredToolRequests])

        @agent.tool_plain(requires_approval=True)
        def pay(amount: int) -> str:
            done.append(amount)
            return "Paid."

        with run(ledger):
            first = agent.run_sync("Pay.")
            assert [one.tool_call_id for one in first.output.approvals] == ["call_1"]
            results = DeferredToolResults(approvals={"call_1": True})
            second = agent.run_sync(
                message_history=first.all_messages(), deferred_tool_results=results
            )
            return str(second.output)

    assert both() == both() == "Done."
    assert done == [120]


def test_agents_side_by_side_are_refused_without_keys(ledger: Ledger) -> None:
    """Which of two requests of one agent comes first is left to chance: the second one is refused;
    inside of steps with keys both run, and are found again."""

    async def both(agent: Agent[Any], *, keyed: bool) -> list[str]:
        @turnledger.step(key=lambda city: city)
        async def ask(city: str) -> str:
            return str((await agent.run(city)).output)

        async def plain(city: str) -> str:
            return str((await agent.run(city)).output)

        async with turnledger.run(f"keyed {keyed}", ledger=ledger):
            one = ask if keyed else plain
            return list(await asyncio.gather(one("Paris"), one("Rome")))

    with pytest.raises(AmbiguousStepError):
        asyncio.run(both(Scripted(says("Yes.")).agent(), keyed=False))
    scripted = Scripted(says("Yes."))
    for _ in range(2):
        assert asyncio.run(both(scripted.agent(), keyed=True)) == ["Yes.", "Yes."]
    assert len(scripted.asked) == 2


# --- what agents do ---


@pytest.mark.parametrize("streamed", [False, True])
def test_structured_output_with_a_retry_is_found_again(ledger: Ledger, streamed: bool) -> None:
    """A reply that does not fit is asked for again: the request for it, which has an id that
    pydantic-ai made up, is the same on a resume."""

    class Receipt(BaseModel):
        amount: int

    async def receipt(agent: Agent[Any, Receipt]) -> Receipt:
        async with run(ledger):
            if not streamed:
                return (await agent.run("Pay.")).output
            async with agent.run_stream("Pay.") as result:
                return await result.get_output()

    wrong = calls(("final_result", {"amount": "much"}, "call_1"))
    right = calls(("final_result", {"amount": 120}, "call_2"))
    replies = (right,) if streamed else (wrong, right)
    for expected in (len(replies), 0):
        scripted = Scripted(*replies)
        agent = scripted.agent(output_type=Receipt)
        assert asyncio.run(receipt(agent)) == Receipt(amount=120)
        assert len(scripted.asked) == expected


def test_text_that_is_asked_for_again_is_found_again(ledger: Ledger) -> None:
    """A retry without a call has an id of pydantic-ai's own, which differs in every process."""
    for expected in (2, 0):
        scripted = Scripted(says("No."), says("Yes."))
        agent = scripted.agent()

        @agent.output_validator
        def check(text: str) -> str:
            if text == "No.":
                raise ModelRetry("Say yes.")
            return text

        with run(ledger):
            assert agent.run_sync("Yes?").output == "Yes."
        assert len(scripted.asked) == expected


def test_a_retry_that_a_tool_asks_for_is_found_again(ledger: Ledger) -> None:
    """ModelRetry is a result, as pydantic-ai has it, and not a failed step."""
    for expected in (2, 0):
        scripted = Scripted(PAYS, says("Done."))
        agent = scripted.agent()

        @agent.tool_plain
        def pay(amount: int) -> str:
            raise ModelRetry("Pay less.")

        with run(ledger):
            result = agent.run_sync("Pay.")
        assert len(scripted.asked) == expected
        told = [part for message in result.all_messages() for part in message.parts]
        retried = [p for p in told if isinstance(p, ToolReturnPart) and p.outcome == "retried"]
        assert [one.content for one in retried] == ["Pay less."]


def test_history_processors_shape_what_is_recorded(ledger: Ledger) -> None:
    """A request is recorded as it is sent, after the processors."""

    def last(messages: list[Any]) -> list[Any]:
        return messages[-1:]

    scripted = Scripted(says("One."), says("Two."))
    for _ in range(2):
        agent = scripted.agent(capabilities=[ProcessHistory(last)])
        with run(ledger):
            first = agent.run_sync("1")
            agent.run_sync("2", message_history=first.all_messages())
    assert [len(one) for one in scripted.asked] == [1, 1]


def test_an_agent_in_a_tool_is_an_inner_run_of_steps(ledger: Ledger) -> None:
    """Requests of the inner agent are inner steps of the call; those that ended are not repeated
    when the call is."""
    inner = Scripted(says("Blue."), says("Red."))
    outer = Scripted(calls(("colour", {}, "call_1")), says("Done."))

    def agents(*, dies: bool) -> Agent[Any]:
        painter, shop = inner.agent(name="painter"), outer.agent()

        @shop.tool
        async def colour(context: RunContext[Any]) -> str:
            found = await painter.run("Which?", usage=context.usage)
            if dies:
                raise Crash
            return str(found.output)

        return shop

    with pytest.raises(Crash), run(ledger):
        agents(dies=True).run_sync("Paint.")
    with run(ledger):
        assert agents(dies=False).run_sync("Paint.").output == "Done."
    assert outer.told == ["Blue."]
    assert len(inner.asked) == 1
    asked = [one.call_id for one in events(ledger, ModelCalled)]
    assert "colour:call_1/painter.model#1" in asked


def test_ids_are_the_same_on_a_resume(ledger: Ledger) -> None:
    """The id of an agent's run, which a tool may use as an idempotency key, is not made anew."""
    seen: list[Any] = []

    def agent(*, dies: bool) -> Agent[Any]:
        made = Scripted(PAYS, says("Done.")).agent()

        @made.tool
        def pay(context: RunContext[Any], amount: int) -> str:
            seen.append((context.run_id, context.conversation_id, context.tool_call_id))
            if dies:
                raise Crash
            return "Paid."

        return made

    with pytest.raises(Crash), run(ledger):
        agent(dies=True).run_sync("Pay.")
    with run(ledger):
        agent(dies=False).run_sync("Pay.")
    assert seen[0] == seen[1]


def test_events_are_told_once(ledger: Ledger) -> None:
    """A handler of events gets none again that it got before the run was interrupted."""
    told: list[str] = []

    async def handle(context: Any, stream: Any) -> None:
        async for event in stream:
            told.append(event.event_kind)

    def agent(scripted: Scripted) -> Agent[Any]:
        durability = TurnledgerDurability(event_stream_handler=handle)
        made = Agent(scripted.model, name="shop", capabilities=[durability])

        @made.tool_plain
        def pay(amount: int) -> str:
            return "Paid."

        return made

    with run(ledger):
        agent(Scripted(PAYS, says("Done."))).run_sync("Pay.")
    assert "function_tool_result" in told
    first = len(told)
    with run(ledger):
        agent(Scripted()).run_sync("Pay.")
    assert len(told) == first


def test_validators_and_operations_of_capabilities_are_steps(ledger: Ledger) -> None:
    """What runs beside model and tools is performed once, too."""
    done: list[str] = []

    class Audit(AbstractCapability[Any]):
        id = "audit"

        @durable_operation(name="note")
        async def note(self, ctx: RunContext[Any], text: str) -> str:
            done.append(text)
            return f"noted {text}"

        async def before_run(self, ctx: RunContext[Any]) -> None:
            assert await self.note(ctx, "a run") == "noted a run"

    def check(ctx: RunContext[Any], amount: int) -> None:
        done.append("checked")

    for _ in range(2):
        agent = Scripted(PAYS, says("Done.")).agent(capabilities=[Audit()])

        @agent.tool_plain(args_validator=check)
        def pay(amount: int) -> str:
            return "Paid."

        with run(ledger):
            agent.run_sync("Pay.")
    assert done == ["a run", "checked"]
    ids = [one.call_id for one in events(ledger, ToolCallStarted)]
    assert ids == ["audit.note#1", "pay.validate:call_1", "pay:call_1"]


def test_dynamic_toolsets_are_found_again(ledger: Ledger) -> None:
    """What a toolset offers is asked for in a step: a resume does not ask it again."""
    made: list[str] = []
    offered = 0

    def offer(context: RunContext[Any]) -> FunctionToolset[Any]:
        made.append("offered")
        toolset = FunctionToolset[Any]()

        @toolset.tool_plain
        def pay(amount: int) -> str:
            made.append("paid")
            return "Paid."

        return toolset

    for _ in range(2):
        scripted = Scripted(PAYS, says("Done."))
        agent = scripted.agent(toolsets=[DynamicToolset(offer, id="shop-tools")])
        with run(ledger):
            assert agent.run_sync("Pay.").output == "Done."
        offered = offered or made.count("offered")
    assert (made.count("paid"), made.count("offered")) == (1, offered)
    assert "shop-tools.tools#1" in [one.call_id for one in events(ledger, ToolCallStarted)]


def test_a_toolset_of_one_run_is_refused(ledger: Ledger) -> None:
    """Its tools would be called without steps."""
    agent = Scripted(says("Done.")).agent()
    with pytest.raises(UserError, match="Turnledger"), run(ledger):
        agent.run_sync("Pay.", toolsets=[FunctionToolset[Any](id="late")])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_workflow_recovers_and_replays_an_agent(asynchronous: bool, ledger: Ledger) -> None:
    """An agent in a workflow is gone on with by its recorded input, sync or async."""
    done: list[int] = []
    agents = [paying(Scripted(PAYS, says("Done.")), done, dies=dies) for dies in (True, False)]
    agents.append(paying(Scripted(), done))

    async def apay(text: str) -> str:
        return str((await agents.pop(0).run(text)).output)

    def pay(text: str) -> str:
        return str(agents.pop(0).run_sync(text).output)

    flow: Any = turnledger.workflow("orders/pay")(apay if asynchronous else pay)
    with pytest.raises(Crash):
        flow.run("Pay.", ledger=ledger, run_id="order")
    assert flow.recover("order", ledger=ledger).output == "Done."
    flow.replay("order", ledger=ledger).check()
    assert done == [120, 120]


def test_images_are_recorded_as_blobs(ledger: Ledger) -> None:
    """Bytes of a prompt are in the ledger once, by name, and found again on a resume."""
    picture = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    scripted = Scripted(says("A hat."), says("Red."))
    for _ in range(2):
        agent = scripted.agent()
        with run(ledger):
            first = agent.run_sync(["What is it?", picture])
            agent.run_sync("Which colour?", message_history=first.all_messages())
    assert len(scripted.asked) == 2
    [first_turn, *_] = state_at(ledger, run_id_for("order")).history.to_list()
    [_, shown] = first_turn.blocks
    assert isinstance(shown, MediaBlock)
    assert shown.blob is not None
    assert ledger.blob(shown.blob) == picture.data
    request = next(events(ledger, ModelCalled)).request
    assert "iVBORw0K" not in str(request)
