"""The shop as an agent of pydantic-ai."""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.frameworks.agents.shop import Shop, ToolText
from turnledger.pydantic_ai import TurnledgerDurability


def run(shop: Shop, colour: str, stream: bool) -> str:
    """The answer to the last question."""
    if colour == "async":
        return asyncio.run(_arun(shop, stream))
    agent, history, answer = _agent(shop, colour), None, ""
    with shop.block() as here:
        for name, number in shop.wording.before:
            here.step(name, shop.check, number)
        for question in shop.wording.questions:
            if stream:
                streamed = agent.run_stream_sync(question, message_history=history)
                for count, answer in enumerate(streamed.stream_text(debounce_by=None)):  # noqa: B007
                    shop.piece(count)
                history = streamed.all_messages()
            else:
                result = agent.run_sync(question, message_history=history)
                answer, history = result.output, result.all_messages()
        for name, number in shop.wording.after:
            here.step(name, shop.check, number)
    return answer


async def _arun(shop: Shop, stream: bool) -> str:
    agent, history, answer = _agent(shop, "async"), None, ""
    async with shop.block() as here:
        for name, number in shop.wording.before:
            await here.astep(name, shop.acheck, number)
        for question in shop.wording.questions:
            if stream:
                async with agent.run_stream(question, message_history=history) as streamed:
                    count = 0
                    async for answer in streamed.stream_text(debounce_by=None):  # noqa: B007
                        shop.piece(count)
                        count += 1
                    history = streamed.all_messages()
            else:
                result = await agent.run(question, message_history=history)
                answer, history = result.output, result.all_messages()
        for name, number in shop.wording.after:
            await here.astep(name, shop.acheck, number)
    return answer


def _agent(shop: Shop, colour: str) -> Agent[None, str]:
    http = DefaultAsyncHttpxClient(verify=False)
    client = AsyncOpenAI(api_key="key", base_url=f"{shop.server}/v1", http_client=http)
    wording = shop.wording
    return Agent(
        OpenAIChatModel(wording.model, provider=OpenAIProvider(openai_client=client)),
        name="shop",
        instructions=wording.system,
        model_settings={"max_tokens": wording.limit},
        tools=[_tool(shop, tool, colour) for tool in wording.tools],
        capabilities=[TurnledgerDurability()],
    )


def _tool(shop: Shop, tool: ToolText, colour: str) -> Tool[None]:
    made = Tool[None].from_schema(
        shop.function(tool, colour), tool.name, tool.description, tool.schema
    )
    made.metadata = {"on_interrupt": tool.on_interrupt}
    return made
