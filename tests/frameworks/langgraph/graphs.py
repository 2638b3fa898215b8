"""Graphs of the tests: an agent whose model says what was planned, and plain state graphs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class PlannedModel(BaseChatModel):
    """A chat model that calls a tool for so many turns, then is done."""

    turns: int
    text: str = "x" * 800
    tool_name: str = "look"

    def _generate(self, messages: list[BaseMessage], *more: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        reply = AIMessage(
            content=self.text if turn < self.turns else "done",
            usage_metadata={"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
            response_metadata={"model_name": "planned", "finish_reason": "stop"},
        )
        if turn < self.turns:
            reply.tool_calls = [
                {
                    "name": self.tool_name,
                    "args": {"n": turn},
                    "id": f"call-{turn}",
                    "type": "tool_call",
                }
            ]
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> PlannedModel:
        return self

    @property
    def _llm_type(self) -> str:
        return "planned"


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"{n}: " + "y" * 800


def agent(saver: Any, turns: int, tools: Sequence[BaseTool] = (look,), **more: Any) -> Any:
    return create_agent(PlannedModel(turns=turns), list(tools), checkpointer=saver, **more)


def config(thread: str = "t", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, **more}, "recursion_limit": 100_000}


class Words(TypedDict):
    words: Annotated[list[str], operator.add]
    count: int


def counter(saver: Any, steps: int = 3, say: Callable[[int], str] = str) -> Any:
    """A graph that adds a word in each of its steps."""

    def add(state: Words) -> Words:
        count = state.get("count", 0) + 1
        return {"words": [say(count)], "count": count}

    def then(state: Words) -> str:
        return "add" if state["count"] % steps else END

    graph = StateGraph(Words)
    graph.add_node("add", add)
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", then)
    return graph.compile(checkpointer=saver)
