"""Durable agents over the SDK's own OpenAI models: what is sent after a resume is what was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI

from tests.servers.openai_chat import OpenAIChat
from tests.servers.openai_responses import OpenAIResponses
from tests.servers.serving import Answer, Asked, Call, StrictServer, Used
from turnledger import run
from turnledger.ledger import Ledger, run_id_for
from turnledger.openai_agents import durable
from turnledger.projections import Usage, fold

WIRES: Any = {
    "chat": (OpenAIChat, OpenAIChatCompletionsModel),
    "responses": (OpenAIResponses, OpenAIResponsesModel),
}
CALLS = (Call("pay", '{"amount": 7}', "call_7"), Call("pay", '{"amount": 8}', "call_8"))
USED = Used(input=100, output=20, cached=50, reasoning=0)


class Killed(BaseException):
    """The process is gone."""


def script(asked: Asked) -> Answer:
    if asked.turn == 1:
        return Answer("I pay.", calls=CALLS, used=USED)
    return Answer("It is paid, both of it.", used=USED)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_resumed_requests_are_those_of_a_whole_run(
    ledger: Ledger, wire: str, streaming: bool
) -> None:
    """Killed in a tool, it asks once more, with the request that an unbroken run sends."""
    make_wire, make_model = WIRES[wire]
    paid: list[int] = []
    dies = True

    @function_tool
    def pay(amount: int) -> str:
        """Pay."""
        if amount == 8 and dies:
            raise Killed
        paid.append(amount)
        return f"paid {amount}"

    async def work(server: StrictServer) -> str:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="a key") as client:
            made: Any = Agent(
                name="shop",
                instructions="Be kind.",
                model=make_model(model="gpt-5", openai_client=client),
                model_settings=ModelSettings(include_usage=True),
                tools=[pay],
            )
            return await asked_of(durable(made))

    async def asked_of(agent: Any) -> str:
        quiet = RunConfig(tracing_disabled=True)
        if not streaming:
            return str((await Runner.run(agent, "Pay.", run_config=quiet)).final_output)
        result = Runner.run_streamed(agent, "Pay.", run_config=quiet)
        async for event in result.stream_events():
            pieces.append(getattr(getattr(event, "data", None), "delta", ""))
        return str(result.final_output)

    def go(name: str, server: StrictServer, *, replay: bool = False) -> str:
        async def block() -> str:
            async with run(name, ledger=ledger, replay=replay):
                return await work(server)

        pieces.clear()
        return asyncio.run(block())

    pieces: list[str] = []
    with StrictServer(make_wire(), script) as server:
        with pytest.raises(Killed):
            go("broken", server)
        dies = False
        assert go("broken", server) == "It is paid, both of it."
        assert sorted(set(paid)) == [7, 8]
        broken = server.bodies[:]
        assert go("whole", server) == "It is paid, both of it."
        assert not server.refused
        assert server.bodies[len(broken) :] == broken
        live = "".join(piece for piece in pieces if isinstance(piece, str))
    assert go("whole", server, replay=True) == "It is paid, both of it."
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == live
    total = fold(ledger.read(run_id_for("whole")), Usage()).total
    assert (total.calls, total.input_tokens, total.output_tokens) == (2, 200, 40)
