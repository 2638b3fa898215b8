"""Wrapped clients under frameworks that take a client: their requests are the same each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.servers.serving import Answer, Asked, Call, Scripted, Status
from tests.unit.adapters.clients.stories import Stopped
from tests.unit.adapters.clients.wrapped import Way, Wrapped, wrapped
from turnledger.adapters.testing.no_network import no_network
from turnledger.ledger import ModelCalled
from turnledger.runtime.steps import run

Agent = Callable[[Any, Callable[[int], int]], Awaitable[str]]


def script(asked: Asked) -> Scripted:
    if asked.turn == 1 and asked.attempt == 1:
        return Status(429, "slow down", {"retry-after-ms": "1"})
    return Answer(calls=(Call("double", '{"n": 4}'),)) if asked.turn == 1 else Answer("It is 8.")


async def _openai_agents(client: Any, double: Callable[[int], int]) -> str:
    import agents

    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel("gpt-test", openai_client=client)
    tool = agents.function_tool(double, name_override="double")
    agent = agents.Agent("doubler", tools=[tool], model=model)
    return str((await agents.Runner.run(agent, "Double 4.")).final_output)


async def _pydantic_ai(client: Any, double: Callable[[int], int]) -> str:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("gpt-test", provider=OpenAIProvider(openai_client=client))
    agent = PydanticAgent(model)

    @agent.tool_plain(name="double")
    def doubled(n: int) -> int:
        return double(n)

    return str((await agent.run("Double 4.")).output)


async def _langchain(client: Any, double: Callable[[int], int]) -> str:
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="gpt-test",
        api_key="test",
        base_url=str(client.base_url),
        http_async_client=client._client,
    )
    agent = create_agent(model, [tool("double", description="Doubles.")(double)])
    told = await agent.ainvoke({"messages": [{"role": "user", "content": "Double 4."}]})
    return str(told["messages"][-1].content)


AGENTS: dict[str, tuple[str, Agent]] = {
    "openai-agents": ("openai-responses", _openai_agents),
    "pydantic-ai": ("openai-chat", _pydantic_ai),
    "langchain": ("openai-chat", _langchain),
}


@pytest.mark.process
@pytest.mark.parametrize("name", AGENTS)
def test_a_framework_over_a_wrapped_client_is_resumed_and_replayed(name: str) -> None:
    """Nothing in its requests differs from one process to the next; its retries are attempts."""
    sdk, agent = AGENTS[name]
    with wrapped(Way(sdk, "async", stream=False), script) as there:
        there.run(lambda: _story(there, agent))
        assert [asked.turn for asked in there.server.asked] == [1, 1, 2]
        assert len({one.call_id for one in there.events("f", ModelCalled)}) == 2


async def _story(there: Wrapped, agent: Agent) -> None:
    client = there.client()

    def stops(n: int) -> int:
        """Double a number."""
        raise Stopped

    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    async def asked(tool: Callable[[int], int], **options: Any) -> str:
        async with run("f", ledger=there.ledger, **options):
            return await agent(client, tool)

    with suppress(Stopped, asyncio.CancelledError):
        await asked(stops)
    assert await asked(double) == "It is 8."
    with no_network() as attempts:
        assert await asked(double, replay=True) == "It is 8."
    assert attempts == []
