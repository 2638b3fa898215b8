"""LangGraph: a graph of one node over `MessagesState`, with `SqliteSaver` or `PostgresSaver`.

A turn is an `invoke` with the user's message, and the node answers: two messages. Durability is
the default ("async": a checkpoint is written while the next step runs, all before `invoke`
returns). SQLite: journal_mode=WAL, and SQLite's default of synchronous=FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.peers.peer import ASKED, NextText, Peer

THREAD: Any = {"configurable": {"thread_id": "conversation"}}


class LangGraph(Peer):
    """A thread of a graph."""

    def _saver(self) -> Any:
        if self.where.startswith("postgresql:"):
            return PostgresSaver.from_conn_string(self.where)
        return SqliteSaver.from_conn_string(self.where)

    def begin(self, many: Sequence[str]) -> None:
        messages = [(AIMessage if n % 2 else HumanMessage)(text) for n, text in enumerate(many)]
        with self._saver() as saver:
            saver.setup()
            _chat(saver, lambda: "").update_state(THREAD, {"messages": messages}, as_node="reply")

    def go_on(self, next_text: NextText) -> None:
        with self._saver() as saver:
            self._graph = _chat(saver, next_text)
            self.load()
            while True:
                self._graph.invoke({"messages": [HumanMessage(next_text())]}, THREAD)

    def load(self) -> Sequence[object]:
        found: Sequence[object] = self._graph.get_state(THREAD).values["messages"]
        return found

    def pay(self, tool: Callable[[], str]) -> None:
        with self._saver() as saver:
            saver.setup()
            _clerk(saver, tool).invoke({"messages": [HumanMessage(ASKED)]}, THREAD)

    def recover(self, tool: Callable[[], str]) -> str:
        """`invoke` without an input goes on from the last checkpoint."""
        with self._saver() as saver:
            return str(_clerk(saver, tool).invoke(None, THREAD)["messages"][-1].content)


def _chat(saver: Any, next_text: NextText) -> Any:
    def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(next_text())]}

    graph = StateGraph(MessagesState)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    graph.add_edge("reply", END)
    return graph.compile(checkpointer=saver)


def _clerk(saver: Any, tool: Callable[[], str]) -> Any:
    def pay() -> str:
        """Pay the invoice."""
        return tool()

    def model(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        if last.type == "tool":
            return {"messages": [AIMessage(last.content)]}
        return {"messages": [AIMessage("", tool_calls=[{"name": "pay", "args": {}, "id": "1"}])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([pay]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)
