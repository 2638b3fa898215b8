"""The shop as a LangChain agent: in a block, and with a checkpointer, whose thread is the run.

With a checkpointer the agent is a graph of its own, or a node of a larger one.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from tests.frameworks.agents.shop import Shop, ToolText
from turnledger.langgraph import TurnledgerMiddleware, TurnledgerSaver

State = dict[str, Any]


def _made(
    shop: Shop, colour: str, saver: TurnledgerSaver, checkpointer: TurnledgerSaver | None = None
) -> tuple[Any, TurnledgerMiddleware]:
    """The agent, and its middleware."""
    wording = shop.wording
    model = ChatOpenAI(
        model=wording.model,
        base_url=f"{shop.server}/v1",
        api_key="key",  # type: ignore[arg-type]
        max_completion_tokens=wording.limit,
        http_client=DefaultHttpxClient(verify=False),
        http_async_client=DefaultAsyncHttpxClient(verify=False),
    )
    policies = {tool.name: tool.on_interrupt for tool in wording.tools}
    middleware = TurnledgerMiddleware(saver, on_interrupt=policies)
    tools = [_tool(shop, tool, colour) for tool in wording.tools]
    agent = create_agent(
        model,
        tools,
        system_prompt=wording.system,
        middleware=[middleware],
        checkpointer=checkpointer,
    )
    return agent, middleware


def _tool(shop: Shop, tool: ToolText, colour: str) -> StructuredTool:
    function = shop.function(tool, colour)
    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.schema,
        func=function if colour == "sync" else None,
        coroutine=function if colour == "async" else None,
    )


def _invoke(shop: Shop, graph: Any, given: Any, config: Any, stream: bool) -> State:
    if not stream:
        result: State = graph.invoke(given, config)
        return result
    last, count = "", 0
    for mode, part in graph.stream(given, config, stream_mode=["messages", "values"]):
        if mode == "values":
            result = part
        else:
            count = count + 1 if part[0].id == last else 0
            last = part[0].id
            shop.piece(count)
    return result


async def _ainvoke(shop: Shop, graph: Any, given: Any, config: Any, stream: bool) -> State:
    if not stream:
        result: State = await graph.ainvoke(given, config)
        return result
    last, count = "", 0
    async for mode, part in graph.astream(given, config, stream_mode=["messages", "values"]):
        if mode == "values":
            result = part
        else:
            count = count + 1 if part[0].id == last else 0
            last = part[0].id
            shop.piece(count)
    return result


# --- an agent in a block ------------------------------------------------------------------------


def run_in_block(shop: Shop, colour: str, stream: bool) -> str:
    """The answer to the last question."""
    if colour == "async":
        return asyncio.run(_arun_in_block(shop, stream))
    agent, _ = _made(shop, colour, TurnledgerSaver(shop.ledger))
    state: State = {"messages": []}
    with shop.block() as here:
        for name, number in shop.wording.before:
            here.step(name, shop.check, number)
        for question in shop.wording.questions:
            said = [*state["messages"], ("user", question)]
            state = _invoke(shop, agent, {"messages": said}, None, stream)
        for name, number in shop.wording.after:
            here.step(name, shop.check, number)
    return str(state["messages"][-1].text)


async def _arun_in_block(shop: Shop, stream: bool) -> str:
    agent, _ = _made(shop, "async", TurnledgerSaver(shop.ledger))
    state: State = {"messages": []}
    async with shop.block() as here:
        for name, number in shop.wording.before:
            await here.astep(name, shop.acheck, number)
        for question in shop.wording.questions:
            said = [*state["messages"], ("user", question)]
            state = await _ainvoke(shop, agent, {"messages": said}, None, stream)
        for name, number in shop.wording.after:
            await here.astep(name, shop.acheck, number)
    return str(state["messages"][-1].text)


# --- with a checkpointer ------------------------------------------------------------------------


def run_agent(shop: Shop, colour: str, stream: bool) -> str:
    """The answer to the last question, of an agent with a checkpointer."""
    saver = TurnledgerSaver(shop.ledger)
    return _run(shop, colour, stream, *_made(shop, colour, saver, saver))


def run_graph(shop: Shop, colour: str, stream: bool) -> str:
    """The answer to the last question, of a graph with the agent as a node."""
    saver = TurnledgerSaver(shop.ledger)
    agent, middleware = _made(shop, colour, saver)
    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_edge(START, "agent")
    return _run(shop, colour, stream, graph.compile(checkpointer=saver), middleware)


def _run(
    shop: Shop, colour: str, stream: bool, graph: Any, middleware: TurnledgerMiddleware
) -> str:
    """Ask the questions; a thread that was interrupted is gone on with."""
    with middleware.replay(shop.name) if shop.replay else nullcontext():
        if colour == "async":
            return asyncio.run(_aask(shop, graph, stream))
        return _ask(shop, graph, stream)


def _ask(shop: Shop, graph: Any, stream: bool) -> str:
    config: Any = {"configurable": {"thread_id": shop.name}}
    state: State = {}
    for number, question in enumerate(shop.wording.questions):
        found = None if shop.replay else graph.get_state(config)
        if _is_answered(found, number):
            state = found.values
            continue
        state = _invoke(shop, graph, _given(found, question), config, stream)
    return str(state["messages"][-1].text)


async def _aask(shop: Shop, graph: Any, stream: bool) -> str:
    config: Any = {"configurable": {"thread_id": shop.name}}
    state: State = {}
    for number, question in enumerate(shop.wording.questions):
        found = None if shop.replay else await graph.aget_state(config)
        if _is_answered(found, number):
            state = found.values
            continue
        given = _given(found, question)
        state = await _ainvoke(shop, graph, given, config, stream)
    return str(state["messages"][-1].text)


def _is_answered(found: Any, number: int) -> bool:
    return found is not None and not found.tasks and _asked(found) > number


def _given(found: Any, question: str) -> Any:
    """What to invoke the graph with: None goes on with an interrupted thread.

    That has tasks; `next` leaves out those which are done and not in a checkpoint yet.
    """
    return None if found is not None and found.tasks else {"messages": [("user", question)]}


def _asked(found: Any) -> int:
    return sum(message.type == "human" for message in found.values.get("messages", ()))
