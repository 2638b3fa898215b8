"""The shop as an agent of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
)
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tests.frameworks.agents.shop import Shop, ToolText
from turnledger.openai_agents import durable

_QUIET = RunConfig(tracing_disabled=True)


def run(shop: Shop, colour: str, stream: bool) -> str:
    """The answer to the last question."""
    if colour == "async":
        return asyncio.run(_arun(shop, stream))
    # The SDK uses one event loop again and again, after it has shut its generators down.
    warnings.filterwarnings("ignore", "asynchronous generator", ResourceWarning)
    agent, answer, said = _agent(shop, colour), "", list[Any]()
    with shop.block() as here:
        for name, number in shop.wording.before:
            here.step(name, shop.check, number)
        for question in shop.wording.questions:
            said.append({"role": "user", "content": question})
            result = Runner.run_sync(agent, said, run_config=_QUIET)
            answer, said = result.final_output, result.to_input_list()
        for name, number in shop.wording.after:
            here.step(name, shop.check, number)
    return answer


async def _arun(shop: Shop, stream: bool) -> str:
    agent, answer, said = _agent(shop, "async"), "", list[Any]()
    async with shop.block() as here:
        for name, number in shop.wording.before:
            await here.astep(name, shop.acheck, number)
        for question in shop.wording.questions:
            said.append({"role": "user", "content": question})
            result: Any
            if stream:
                result = Runner.run_streamed(agent, said, run_config=_QUIET)
                count = 0
                async for event in result.stream_events():
                    kind = getattr(getattr(event, "data", None), "type", "")
                    count = 0 if kind == "response.created" else count + 1
                    shop.piece(count)
            else:
                result = await Runner.run(agent, said, run_config=_QUIET)
            answer, said = result.final_output, result.to_input_list()
        for name, number in shop.wording.after:
            await here.astep(name, shop.acheck, number)
    return answer


def _agent(shop: Shop, colour: str) -> Any:
    http = DefaultAsyncHttpxClient(verify=False)
    client = AsyncOpenAI(api_key="key", base_url=f"{shop.server}/v1", http_client=http)
    wording = shop.wording
    agent: Any = Agent(
        name="shop",
        instructions=wording.system,
        model=OpenAIResponsesModel(wording.model, client),
        model_settings=ModelSettings(max_tokens=wording.limit),
        tools=[_tool(shop, tool, colour) for tool in wording.tools],
    )
    policies = {tool.name: tool.on_interrupt for tool in wording.tools}
    return durable(agent, on_interrupt=policies)


def _tool(shop: Shop, tool: ToolText, colour: str) -> FunctionTool:
    function = shop.function(tool, colour)

    async def invoke(context: Any, arguments: str) -> Any:
        given = json.loads(arguments)
        return await function(**given) if colour == "async" else function(**given)

    return FunctionTool(tool.name, tool.description, tool.schema, invoke)
