"""What the loop's own bookkeeping costs: the last turn of a long run against the first ones."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import Result, samples_ratio
from turnledger.ledger import Ledger, TokenUsage, new_run_id
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MainLoopConfig,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ProviderAdapter,
    Reply,
    Request,
    Session,
    Tool,
    ToolCall,
    ToolContext,
)

CALLS = 1000
WINDOW = 100


@dataclass(frozen=True)
class Order:
    number: int = 1


class _Silent(ProviderAdapter[Any]):
    """A provider that never looks at the conversation: what is measured is the rest."""

    name = "silent"

    def __init__(self, calls: int = CALLS) -> None:
        super().__init__(model="m")
        self.moments: list[float] = []
        self._calls = calls

    def encode(self, request: Request) -> Any:
        return request.turn

    def send(self, payload: Any, sending: Any) -> Any:
        # The processor's time of this thread: waiting for the disk is not bookkeeping.
        self.moments.append(time.thread_time())
        return payload

    def decode(self, raw: Any) -> Reply:
        usage = TokenUsage(input_tokens=100, output_tokens=10)
        if raw > self._calls:
            return Reply(text="Done.", usage=usage)
        call = ToolCall(f"call_{raw}", "book", f'{{"number": {raw}}}')
        return Reply(text="One more.", tool_calls=(call,), usage=usage)


class _Clerk(MainLoop[Order, Any]):
    def create_session(self) -> Session:
        return Session(bus=self._bus)

    def create_prompt(self, request: Order) -> Prompt[Any]:
        tool = Tool[Order, Any](name="book", description="Book it.", handler=_book)
        task = MarkdownSection(title="Task", template="Book all.", key="task", tools=[tool])
        return Prompt(PromptTemplate(ns="bench", key="book", sections=[task]))


def _book(params: Order, *, context: ToolContext) -> str:
    context.session[Order].append(params)
    return "Booked."


def clerk(ledger: Ledger, calls: int = CALLS) -> tuple[MainLoop[Order, Any], _Silent]:
    """A loop that makes so many calls, and its adapter."""
    adapter = _Silent(calls)
    free = MainLoopConfig(max_turns=None)
    return _Clerk(adapter=adapter, bus=InProcessEventBus(), ledger=ledger, config=free), adapter


def measure(folder: Path) -> Iterator[Result]:
    with Ledger.open(folder / "loop.db") as ledger:
        (loop, adapter), run = clerk(ledger), new_run_id()
        gc.collect()
        loop.execute(Order(), run_id=run)
        turns = [b - a for a, b in zip(adapter.moments, adapter.moments[1:], strict=False)]
        first, last = turns[10 : 10 + WINDOW], turns[-WINDOW:]
        ratio = samples_ratio(last, first)
        commits = len({record.commit for record in ledger.read(run)})
    name = "a turn's bookkeeping, 1,000th tool call against the first ones"
    yield Result(name, ratio, 1.2, at_least=False)
    # A turn of a model and its tool: one commit before the request, one before the handler.
    yield Result("commits per turn with one tool", commits / CALLS, 2.05, at_least=False)
