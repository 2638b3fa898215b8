"""`durable`: agents of the SDK as runs that are resumed within a turn and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
import pytest
from agents import (
    Agent,
    LocalShellTool,
    RunConfig,
    Runner,
    ToolOutputImage,
    UserError,
    function_tool,
    handoff,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from turnledger import run, step
from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    MessageAppended,
    ModelReplied,
    ToolCallInDoubt,
    run_id_for,
)
from turnledger.openai_agents import TurnledgerSession, durable
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.replaying.replay import ReplayDivergedError
from turnledger.runtime.steps import UnrecordableResultError

QUIET = RunConfig(tracing_disabled=True)
ASKED = "Pay 7 and 8."


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Shop:
    """An agent that pays twice at once, and what was done in the world."""

    paid: list[int] = field(default_factory=list)
    asked: int = 0
    # What happens in the tool that pays this amount.
    before: dict[int, Callable[[], None]] = field(default_factory=dict)
    instructions: str = "Be kind."
    on_interrupt: Any = None

    def agent(self, **more: Any) -> Any:
        @function_tool
        def pay(amount: int) -> str:
            """Pay."""
            self.before.get(amount, int)()
            self.paid.append(amount)
            return f"paid {amount}"

        made: Any = Agent(
            name="shop", instructions=self.instructions, model=_Answering(self), tools=[pay]
        )
        return durable(made, on_interrupt=self.on_interrupt or {}, **more)


class _Answering(ScriptedModel):
    """Answers by the conversation, as a provider does, and not by the number of the call."""

    def __init__(self, shop: Shop) -> None:
        super().__init__([])
        self._shop = shop

    def _turn(self, items: Any) -> Any:
        self._shop.asked += 1
        is_answered = any(
            isinstance(item, dict) and item.get("type") == "function_call_output" for item in items
        )
        steps = [
            [function_call("pay", {"amount": n}, call_id=f"call_{n}") for n in (7, 8)],
            [assistant_message("Done.", item_id="msg_1")],
        ]
        return ScriptedModel([steps[is_answered]])

    async def get_response(self, *args: Any, **more: Any) -> Any:
        items = args[1] if len(args) > 1 else more["input"]
        return await self._turn(items).get_response(*args, **more)

    async def stream_response(self, *args: Any, **more: Any) -> Any:
        items = args[1] if len(args) > 1 else more["input"]
        async for event in self._turn(items).stream_response(*args, **more):
            yield event


async def whole(agent: Any, **more: Any) -> Any:
    result = await Runner.run(agent, ASKED, run_config=QUIET, **more)
    return result.final_output, result.to_input_list()


async def streamed(agent: Any, **more: Any) -> Any:
    result = Runner.run_streamed(agent, ASKED, run_config=QUIET, **more)
    events = [event.type async for event in result.stream_events()]
    assert events.count("run_item_stream_event") == 5
    return result.final_output, result.to_input_list()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


def in_run(ledger: Ledger, work: Callable[[], Any], *, replay: bool = False) -> Any:
    async def block() -> Any:
        async with run("order", ledger=ledger, replay=replay):
            return await work()

    return asyncio.run(block())


@pytest.mark.parametrize("way", [whole, streamed])
def test_run_again_and_replay_perform_nothing(ledger: Ledger, way: Any) -> None:
    """The same lines give the same result from the record, without a model and without a tool."""
    shop = Shop()
    expected = in_run(ledger, lambda: way(shop.agent()))
    assert (shop.asked, sorted(shop.paid)) == (2, [7, 8])
    head = ledger.head(run_id_for("order"))
    assert in_run(ledger, lambda: way(shop.agent())) == expected
    assert in_run(ledger, lambda: way(shop.agent()), replay=True) == expected
    assert (shop.asked, len(shop.paid), ledger.head(run_id_for("order"))) == (2, 2, head)


@pytest.mark.parametrize("way", [whole, streamed])
def test_outside_of_a_run_the_agent_is_as_it_was(way: Any) -> None:
    """Nothing is recorded and nothing differs where there is no run."""
    shop = Shop()
    output, items = asyncio.run(way(shop.agent()))
    assert output == "Done."
    assert [item["output"] for item in items if "output" in item] == ["paid 7", "paid 8"]


@pytest.mark.parametrize("way", [whole, streamed])
def test_killed_in_a_tool_it_goes_on_there(ledger: Ledger, way: Any) -> None:
    """A run that died in one of two tools repeats that tool alone, and asks the model no more."""
    shop = Shop(before={8: _die})
    with pytest.raises(Killed):
        in_run(ledger, lambda: way(shop.agent()))
    done = list(shop.paid)
    shop.before = {}
    output, _ = in_run(ledger, lambda: way(shop.agent()))
    assert output == "Done."
    assert shop.paid == [*done, *(n for n in (7, 8) if n not in done)]
    assert shop.asked == 2
    events = [record.event for record in ledger.read(run_id_for("order"))]
    assert sum(isinstance(event, ModelReplied) for event in events) == 2


def _die() -> None:
    raise Killed


def test_ask_waits_and_fail_tells_the_model(ledger: Ledger) -> None:
    """A tool whose outcome is unknown is never repeated under "ask" and "fail"."""
    shop = Shop(before={8: _die}, on_interrupt={"pay": "ask"})
    with pytest.raises(Killed):
        in_run(ledger, lambda: whole(shop.agent()))
    done = list(shop.paid)
    with pytest.raises(DecisionRequiredError, match="pay:call_8"):
        in_run(ledger, lambda: whole(shop.agent()))
    assert shop.paid == done
    assert ledger.run(run_id_for("order")).status == "waiting"


def test_fail_tells_the_model(ledger: Ledger) -> None:
    """Under "fail" the model is told that the outcome is unknown, live and on every resume."""
    shop = Shop(before={8: _die}, on_interrupt={"pay": "fail"})
    with pytest.raises(Killed):
        in_run(ledger, lambda: whole(shop.agent()))
    done = list(shop.paid)
    expected = in_run(ledger, lambda: whole(shop.agent()))
    outputs = {item["call_id"]: item["output"] for item in expected[1] if "output" in item}
    assert "outcome of step pay:call_8 is unknown" in outputs["call_8"]
    assert in_run(ledger, lambda: whole(shop.agent()), replay=True) == expected
    assert shop.paid == done


@pytest.mark.parametrize("replay", [False, True])
def test_changed_agent_is_a_divergence(ledger: Ledger, replay: bool) -> None:
    """Other instructions are found at the first model call, and nothing is performed."""
    shop = Shop(before={8: _die})
    with pytest.raises(Killed):
        in_run(ledger, lambda: whole(shop.agent()))
    asked, done, shop.before = shop.asked, list(shop.paid), {}
    shop.instructions = "Be quick."
    with pytest.raises(ReplayDivergedError, match="quick"):
        in_run(ledger, lambda: whole(shop.agent()), replay=replay)
    assert (shop.asked, shop.paid) == (asked, done)


def test_halted_inner_step_is_not_told_to_the_model(ledger: Ledger) -> None:
    """A step inside a tool that waits for a person halts the run: the SDK makes no text of it."""

    @step(on_interrupt="ask")
    def transfer() -> str:
        if not done:
            done.append("tried")
            raise Killed
        raise AssertionError("it was performed again")

    @function_tool
    def pay() -> str:
        """Pay."""
        return transfer()

    def agent() -> Any:
        model = ScriptedModel([[function_call("pay", {}, call_id="call_1")]])
        made: Any = Agent(name="shop", model=model, tools=[pay])
        return durable(made)

    done: list[str] = []
    with pytest.raises(Killed):
        in_run(ledger, lambda: Runner.run(agent(), "Pay.", run_config=QUIET))
    with pytest.raises(DecisionRequiredError, match="transfer"):
        in_run(ledger, lambda: Runner.run(agent(), "Pay.", run_config=QUIET))
    assert ledger.run(run_id_for("order")).status == "waiting"


def test_handoffs_are_durable_too(ledger: Ledger) -> None:
    """The agents that one hands off to, in a circle and by a Handoff, are steps as well."""

    def agent(asked: list[str]) -> Any:
        models = {
            "triage": ScriptedModel([[function_call("transfer_to_billing", {}, call_id="call_1")]]),
            "billing": ScriptedModel([[assistant_message("Paid.", item_id="msg_1")]]),
        }
        triage: Any = Agent(name="triage", model=models["triage"])
        billing: Any = Agent(name="billing", model=models["billing"], handoffs=[triage])
        triage.handoffs = [handoff(billing)]
        asked.extend(models)
        return durable(triage)

    async def work() -> Any:
        return (await Runner.run(agent([]), "Pay.", run_config=QUIET)).final_output

    assert in_run(ledger, work) == "Paid."
    started = [r.event.call_id for r in ledger.read(run_id_for("order")) if r.tag == "model.called"]
    assert started == ["triage model#1", "billing model#1"]
    assert in_run(ledger, work, replay=True) == "Paid."


def test_agents_as_tools_have_steps_inside(ledger: Ledger) -> None:
    """Of a durable agent that is another's tool, the calls are inner steps of the tool's step."""

    async def work() -> Any:
        inner: Any = Agent(
            name="inner", model=ScriptedModel([[assistant_message("42.", item_id="msg_1")]])
        )
        call = function_call("ask", {"input": "What?"}, call_id="call_1")
        script = ScriptedModel([[call], [assistant_message("It is 42.", item_id="msg_2")]])
        outer: Any = Agent(
            name="outer", model=script, tools=[durable(inner).as_tool("ask", "Asks.")]
        )
        return (await Runner.run(durable(outer), "Ask.", run_config=QUIET)).final_output

    assert in_run(ledger, work) == "It is 42."
    started = [r.event.call_id for r in ledger.read(run_id_for("order")) if r.tag == "model.called"]
    assert started == ["outer model#1", "ask:call_1/inner model#1", "outer model#2"]
    assert in_run(ledger, work, replay=True) == "It is 42."


def test_results_and_time_limits_are_part_of_the_step(ledger: Ledger) -> None:
    """An image, an object and a tool that took too long come back from the record as they came."""

    class Odd:
        def __str__(self) -> str:
            return "an odd object"

    @function_tool
    def picture() -> ToolOutputImage:
        """Draw."""
        return ToolOutputImage(image_url="https://example.com/a.png")

    @function_tool
    def odd() -> object:
        """Odd."""
        return Odd()

    @function_tool(timeout=0.01)
    async def slow() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    async def work() -> Any:
        calls = [
            function_call(name, {}, call_id=f"call_{name}") for name in ("picture", "odd", "slow")
        ]
        model = ScriptedModel([calls, [assistant_message("Done.", item_id="msg_1")]])
        agent: Any = Agent(name="shop", model=model, tools=[picture, odd, slow])
        result = await Runner.run(durable(agent), "Go.", run_config=QUIET)
        return [item["output"] for item in result.to_input_list() if "output" in item]

    expected = in_run(ledger, work)
    assert expected[0][0]["image_url"] == "https://example.com/a.png"
    assert expected[1] == "an odd object"
    assert "timed out" in expected[2]
    assert in_run(ledger, work, replay=True) == expected


def test_session_in_a_run_is_read_as_it_was(ledger: Ledger) -> None:
    """A resumed run with a session sees the history that it saw, and adds nothing twice."""
    shop = Shop(before={8: _die})

    async def work() -> Any:
        return await whole(shop.agent(), session=TurnledgerSession("chat", ledger))

    asyncio.run(TurnledgerSession("chat", ledger).add_items([{"role": "user", "content": "Hi."}]))
    with pytest.raises(Killed):
        in_run(ledger, work)
    # Another run goes on with the chat meanwhile.
    asyncio.run(TurnledgerSession("chat", ledger).add_items([{"role": "user", "content": "Yo."}]))
    shop.before = {}
    expected = in_run(ledger, work)
    assert (shop.asked, sorted(set(shop.paid))) == (2, [7, 8])
    items: Any = asyncio.run(TurnledgerSession("chat", ledger).get_items())
    said = [item.get("content", item.get("output")) for item in items if item.get("role") == "user"]
    assert said == ["Hi.", ASKED, "Yo."]
    assert [item["call_id"] for item in items if "output" in item] == ["call_7", "call_8"]
    assert in_run(ledger, work, replay=True) == expected


def test_tools_that_cannot_be_steps_are_refused() -> None:
    """A tool that runs here and that the SDK has no place around is refused, by name."""
    shell: Any = LocalShellTool(executor=lambda request: "")
    with pytest.raises(InvalidInputError, match="local_shell"):
        durable(Agent(name="shop", tools=[shell]))
    with pytest.raises(InvalidInputError, match="expected one of retry, fail, ask"):
        durable(Agent(name="shop"), on_interrupt={"pay": "never"})  # type: ignore[dict-item]


@pytest.mark.parametrize("streaming", [False, True])
def test_errors_of_the_sdk_are_raised_again(ledger: Ledger, streaming: bool) -> None:
    """Code that catches the SDK's error, and goes on with another model, does so on a replay."""

    class Busy(ScriptedModel):
        async def get_response(self, *args: Any, **more: Any) -> Any:
            raise self.error()

        async def stream_response(self, *args: Any, **more: Any) -> Any:
            raise self.error()
            yield

        def error(self) -> Exception:
            tried.append(1)
            response = httpx2.Response(429, request=httpx2.Request("POST", "https://a.example"))
            return openai.RateLimitError("Slow down.", response=response, body={"code": "busy"})

    async def ask(model: Any) -> Any:
        agent: Any = durable(Agent(name="shop", model=model))
        if not streaming:
            return (await Runner.run(agent, "Go.", run_config=QUIET)).final_output
        result = Runner.run_streamed(agent, "Go.", run_config=QUIET)
        async for _ in result.stream_events():
            pass
        return result.final_output

    async def work() -> Any:
        try:
            return await ask(Busy([]))
        except openai.RateLimitError as error:
            said = f"{error.status_code} {error.message} {error.code}"
            model = ScriptedModel([[assistant_message("Done.", item_id="msg_1")]])
            return said, await ask(model)

    tried: list[int] = []
    expected = in_run(ledger, work)
    assert expected == ("429 Slow down. busy", "Done.")
    assert in_run(ledger, work, replay=True) == expected
    assert len(tried) == 1


@pytest.mark.parametrize("way", [whole, streamed])
def test_reply_with_a_secret_is_refused_on_every_resume(ledger: Ledger, way: Any) -> None:
    """A reply that can't be read back as it came is an outcome of its own, recorded once."""

    async def work() -> Any:
        reply = assistant_message("ghp_" + "a1B2" * 9, item_id="msg_1")
        agent: Any = Agent(name="shop", model=ScriptedModel([[reply]]))
        return await way(durable(agent))

    for replay in (False, False, True):
        with pytest.raises(UnrecordableResultError, match="the redactor would record"):
            in_run(ledger, work, replay=replay)
    ended = [r for r in ledger.read(run_id_for("order")) if r.tag.startswith("model.call_failed")]
    assert len(ended) == 1


def test_model_that_is_not_recorded_is_noticed(ledger: Ledger) -> None:
    """A tool is not run for a model that the run config put in the durable one's place."""
    shop = Shop()
    other = ScriptedModel([[function_call("pay", {"amount": 7}, call_id="call_7")]])
    config = RunConfig(tracing_disabled=True, model=other)
    with pytest.raises(UserError, match="set the model on the agent"):
        in_run(ledger, lambda: Runner.run(shop.agent(), ASKED, run_config=config))
    assert not shop.paid


def test_messages_stand_once(ledger: Ledger) -> None:
    """Each message of the conversation is recorded once, however often it is sent."""
    shop = Shop()
    in_run(ledger, lambda: whole(shop.agent()))
    said = [
        event.message.role
        for record in ledger.read(run_id_for("order"))
        if isinstance(event := record.event, MessageAppended)
    ]
    assert said == ["system", "user", "assistant", "tool", "tool", "assistant"]
    doubts = [r for r in ledger.read(run_id_for("order")) if isinstance(r.event, ToolCallInDoubt)]
    assert not doubts
