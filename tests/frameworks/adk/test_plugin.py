"""`TurnledgerPlugin`: agents of ADK as runs that are resumed within a turn and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import ToolContext
from google.genai import errors, types
from pydantic import PrivateAttr

from turnledger import run
from turnledger.adk import TurnledgerPlugin, TurnledgerSessionService
from turnledger.ledger import InvalidInputError, Ledger, run_id_for
from turnledger.runtime import DecisionRequiredError
from turnledger.runtime.replaying.replay import ReplayDivergedError


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
    streaming: bool = False

    def runner(self, ledger: Ledger) -> Any:
        async def pay(amount: int, tool_context: ToolContext) -> dict[str, str]:
            """Pay."""
            self.before.get(amount, int)()
            self.paid.append(amount)
            tool_context.state["total"] = sum(self.paid)
            return {"result": f"paid {amount}"}

        async def thank(**given: Any) -> None:
            """A callback of the agent's own, which changes what the model said."""
            for part in given["llm_response"].content.parts:
                if part.text:
                    part.text += " Thanks."

        model = Answering(model="scripted")
        model._shop = self
        agent = LlmAgent(
            name="shop",
            model=model,
            instruction=self.instructions,
            tools=[pay],
            after_model_callback=thank,
        )
        return runner_of(agent, ledger, TurnledgerPlugin(self.on_interrupt))

    async def pay(self, ledger: Ledger) -> list[Any]:
        """The texts and results of one run of the agent."""
        mode = StreamingMode.SSE if self.streaming else StreamingMode.NONE
        content = types.Content(role="user", parts=[types.Part(text="Pay 7 and 8.")])
        events = self.runner(ledger).run_async(
            user_id="ada",
            session_id="s1",
            new_message=content,
            run_config=RunConfig(streaming_mode=mode),
        )
        told: list[Any] = []
        async for event in events:
            for part in (event.content.parts or ()) if event.content else ():
                if not event.partial:
                    told.append(part.text or part.function_response or part.function_call.id)
        return told


def runner_of(agent: Any, ledger: Ledger, plugin: TurnledgerPlugin) -> Any:
    return Runner(
        app=App(name="shop", root_agent=agent, plugins=[plugin]),
        session_service=TurnledgerSessionService(ledger),
        auto_create_session=True,
    )


class Answering(BaseLlm):
    """Answers by the conversation, as a provider does."""

    _shop: Any = PrivateAttr()

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        self._shop.asked += 1
        parts = [part for one in llm_request.contents for part in one.parts or ()]
        answered = any(part.function_response or "nothing" in (part.text or "") for part in parts)
        calls = [types.FunctionCall(name="pay", args={"amount": n}) for n in (7, 8)]
        parts = [
            types.Part(function_call=call, thought_signature=b"\xff\x00sealed") for call in calls
        ]
        if answered and stream:
            piece = types.Content(role="model", parts=[types.Part(text="Do")])
            yield LlmResponse(content=piece, partial=True)
        said = [types.Part(text="Done.")] if answered else parts
        yield LlmResponse(content=types.Content(role="model", parts=said), model_version="m")


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


def in_run(ledger: Ledger, work: Callable[[Ledger], Any], *, replay: bool = False) -> Any:
    async def block() -> Any:
        async with run("order", ledger=ledger, replay=replay):
            return await work(ledger)

    return asyncio.run(block())


def _die() -> None:
    raise Killed


@pytest.mark.parametrize("streaming", [False, True])
def test_run_again_and_replay_perform_nothing(ledger: Ledger, streaming: bool) -> None:
    """The same lines give the same from the record, the agent's own callback included."""
    shop = Shop(streaming=streaming)
    expected = in_run(ledger, shop.pay)
    assert expected[-1] == "Done. Thanks."
    assert (shop.asked, sorted(shop.paid)) == (2, [7, 8])
    heads = [(info.run_id, info.version) for info in ledger.runs()]
    assert in_run(ledger, shop.pay) == expected
    assert in_run(ledger, shop.pay, replay=True) == expected
    assert (shop.asked, len(shop.paid)) == (2, 2)
    assert [(info.run_id, info.version) for info in ledger.runs()] == heads


@pytest.mark.parametrize("streaming", [False, True])
def test_killed_in_a_tool_it_goes_on_there(ledger: Ledger, streaming: bool) -> None:
    """A run that died in one of two tools repeats that tool alone; the session has all once."""
    shop = Shop(before={8: _die}, streaming=streaming)
    with pytest.raises(Killed):
        in_run(ledger, shop.pay)
    done, shop.before = list(shop.paid), {}
    told = in_run(ledger, shop.pay)
    assert told[-1] == "Done. Thanks."
    assert shop.paid == [*done, *(n for n in (7, 8) if n not in done)]
    assert shop.asked == 2
    session = asyncio.run(
        TurnledgerSessionService(ledger).get_session(
            app_name="shop", user_id="ada", session_id="s1"
        )
    )
    assert [event.author for event in session.events] == ["user", "shop", "shop", "shop"]
    assert session.state["total"] == 15
    assert in_run(ledger, shop.pay, replay=True) == told


def test_ask_and_fail_never_repeat(ledger: Ledger) -> None:
    """A tool whose outcome is unknown is not called again: a person decides."""
    shop = Shop(before={8: _die}, on_interrupt={"pay": "ask"})
    with pytest.raises(Killed):
        in_run(ledger, shop.pay)
    done = list(shop.paid)
    with pytest.raises(DecisionRequiredError, match="pay:adk-"):
        in_run(ledger, shop.pay)
    assert shop.paid == done
    assert ledger.run(run_id_for("order")).status == "waiting"


def test_fail_tells_the_model(ledger: Ledger) -> None:
    """Under "fail" the model is told that the outcome is unknown, on every resume the same."""
    shop = Shop(before={8: _die}, on_interrupt={"pay": "fail"})
    with pytest.raises(Killed):
        in_run(ledger, shop.pay)
    done = list(shop.paid)
    told = in_run(ledger, shop.pay)
    results = [one.response for one in told if isinstance(one, types.FunctionResponse)]
    assert any("is unknown" in result.get("error", "") for result in results)
    assert in_run(ledger, shop.pay, replay=True) == told
    assert shop.paid == done


@pytest.mark.parametrize("replay", [False, True])
def test_changed_agent_is_a_divergence(ledger: Ledger, replay: bool) -> None:
    """Other instructions are found at the first model call, and nothing is performed."""
    shop = Shop(before={8: _die})
    with pytest.raises(Killed):
        in_run(ledger, shop.pay)
    asked, done, shop.before = shop.asked, list(shop.paid), {}
    shop.instructions = "Be quick."
    with pytest.raises(ReplayDivergedError, match="quick"):
        in_run(ledger, shop.pay, replay=replay)
    assert (shop.asked, shop.paid) == (asked, done)


def test_transfers_are_done_again_from_the_record(ledger: Ledger) -> None:
    """What a tool did beside its result, a transfer to another agent, is done on a resume too."""

    class Transferring(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            call = types.FunctionCall(name="transfer_to_agent", args={"agent_name": "billing"})
            part = types.Part(function_call=call)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    async def work(opened: Ledger) -> list[str]:
        model = Answering(model="scripted")
        model._shop = shop

        def pay(amount: int) -> dict[str, str]:
            """Pay."""
            shop.before.get(amount, int)()
            shop.paid.append(amount)
            return {"result": f"paid {amount}"}

        billing = LlmAgent(name="billing", model=model, tools=[pay])
        agent = LlmAgent(name="triage", model=Transferring(model="t"), sub_agents=[billing])
        runner = runner_of(agent, opened, TurnledgerPlugin())
        content = types.Content(role="user", parts=[types.Part(text="Pay.")])
        events = runner.run_async(user_id="ada", session_id="s1", new_message=content)
        return [event.author async for event in events]

    shop = Shop(before={8: _die})
    with pytest.raises(Killed):
        in_run(ledger, work)
    shop.before = {}
    expected = in_run(ledger, work)
    assert expected == ["triage"] * 2 + ["billing"] * 3
    assert (shop.asked, sorted(set(shop.paid))) == (2, [7, 8])
    assert in_run(ledger, work, replay=True) == expected


def test_errors_of_the_sdk_are_raised_again(ledger: Ledger) -> None:
    """The error of a model call has its class, status and body on a replay too."""

    class Busy(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            tried.append(1)
            raise errors.ClientError(429, {"error": {"message": "Slow down.", "code": 429}})
            yield

    async def work(opened: Ledger) -> str:
        agent = LlmAgent(name="shop", model=Busy(model="busy"))
        runner = runner_of(agent, opened, TurnledgerPlugin())
        content = types.Content(role="user", parts=[types.Part(text="Go.")])
        try:
            async for _ in runner.run_async(user_id="a", session_id="s1", new_message=content):
                pass
        except errors.ClientError as error:
            return f"{error.code} {error.message}"
        return ""

    tried: list[int] = []
    assert in_run(ledger, work) == "429 Slow down."
    assert in_run(ledger, work, replay=True) == "429 Slow down."
    assert len(tried) == 1


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
def test_agents_side_by_side(ledger: Ledger) -> None:
    """Agents that run in parallel, and append to one session in any order, are replayed."""

    async def work(opened: Ledger) -> list[str]:
        agents = []
        for name in ("one", "two", "three"):
            model = Answering(model="scripted")
            model._shop = shop
            agents.append(LlmAgent(name=name, model=model))
        together = ParallelAgent(name="all", sub_agents=agents)
        runner = runner_of(together, opened, TurnledgerPlugin())
        content = types.Content(role="user", parts=[types.Part(text="Pay nothing.")])
        events = runner.run_async(user_id="ada", session_id="s1", new_message=content)
        return sorted([event.author async for event in events])

    shop = Shop()
    expected = in_run(ledger, work)
    assert expected == ["one", "three", "two"]
    assert in_run(ledger, work, replay=True) == expected
    assert shop.asked == 3


def test_unknown_policies_are_refused() -> None:
    """A policy that there is not is refused when the plugin is made."""
    with pytest.raises(InvalidInputError, match="expected one of retry, fail, ask"):
        TurnledgerPlugin({"pay": "never"})  # type: ignore[dict-item]
