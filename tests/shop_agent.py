"""An agent for tests of tests: projects are made of its text, changed in a line or as it is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from turnledger.ledger import Ledger
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Reply,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)


@dataclass(frozen=True)
class Order:
    """What a customer wants."""

    item: str


@dataclass(frozen=True)
class Item:
    item: str


@dataclass(frozen=True)
class Basket:
    total: int = 0


@dataclass(frozen=True)
class Added:
    price: int


def add(values: tuple[Basket, ...], event: Added, *, context: Any) -> tuple[Basket, ...]:
    return (Basket(values[-1].total + event.price),)


CALLED: list[str] = []


def price(params: Item, *, context: ToolContext) -> ToolResult[Any]:
    CALLED.append(context.call_id)
    context.session[Basket].apply(Added(5))
    return ToolResult(f"{params.item} is 5 euros.")


def stock(params: Item, *, context: ToolContext) -> ToolResult[Any]:
    CALLED.append(context.call_id)
    return ToolResult("There is plenty.")


class Shop(MainLoop[Order, str]):
    def create_session(self) -> Session:
        session = Session(bus=self._bus)
        session[Basket].register(Added, add)
        session[Basket].seed([Basket()])
        return session

    def create_prompt(self, request: Order) -> Prompt[str]:
        tools = [
            Tool[Item, Any](name="price", description="Look up a price.", handler=price),
            Tool[Item, Any](name="stock", description="Look up a stock.", handler=stock),
        ]
        task = MarkdownSection[Order](
            title="Task", template="Sell ${item}.", key="task", tools=tools
        )
        return Prompt(PromptTemplate(ns="shop", key="sell", sections=[task])).bind(request)


REPLIES = [
    Reply(tool_calls=(ToolCall("c1", "price", '{"item": "tea"}'),)),
    Reply(tool_calls=(ToolCall("c2", "stock", '{"item": "tea"}'),)),
    Reply(text="Tea is 5 \x1b[31meuros\x1b[0m."),
]


def loop(ledger: Ledger) -> Shop:
    """The agent on a ledger."""
    return Shop(adapter=ScriptedAdapter(REPLIES), bus=InProcessEventBus(), ledger=ledger)


if __name__ == "__main__":
    with Ledger.open(sys.argv[1]) as book:
        loop(book).execute(Order("tea"), run_id=UUID(sys.argv[2]))
