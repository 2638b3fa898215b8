"""How late an event loop is while agents run on it: 200 runs at once against 8."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.looping import Order
from benchmarks.measuring import Result
from turnledger.ledger import Ledger, TokenUsage
from turnledger.runtime import (
    InProcessEventBus,
    MainLoop,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ProviderAdapter,
    Reply,
    Request,
    Session,
    ToolCall,
)
from turnledger.runtime.agent.tools.function_tool import tool
from turnledger.runtime.agents.async_runs import run_async

MANY, FEW = 200, 8
ROUNDS = 3
TURNS = 4
TICK = 0.005


class _Awaited(ProviderAdapter[Any]):
    """A model that takes its time and no processor: what is measured is the rest."""

    name = "awaited"

    def encode(self, request: Request) -> Any:
        return request.turn

    async def send_async(self, payload: Any, sending: Any) -> Any:
        await asyncio.sleep(0.05)
        return payload

    def send(self, payload: Any, sending: Any) -> Any:
        raise AssertionError("it is awaited")

    def decode(self, raw: Any) -> Reply:
        usage = TokenUsage(input_tokens=100, output_tokens=10)
        if raw > TURNS:
            return Reply(text="Done.", usage=usage)
        name = "book" if raw % 2 else "look"
        call = ToolCall(f"call_{raw}", name, f'{{"number": {raw}}}')
        return Reply(text="One more.", tool_calls=(call,), usage=usage)


@tool
def book(number: int) -> str:
    """Book it."""
    return f"Booked {number}."


@tool
async def look(number: int) -> str:
    """Look it up."""
    await asyncio.sleep(0.01)
    return f"There are {number}."


class _Clerk(MainLoop[Order, Any]):
    def create_session(self) -> Session:
        return Session(bus=self._bus)

    def create_prompt(self, request: Order) -> Prompt[Any]:
        task = MarkdownSection(title="Task", template="Book.", key="task", tools=[book, look])
        return Prompt(PromptTemplate(ns="bench", key="async", sections=[task]))


def measure(folder: Path) -> Iterator[Result]:
    late: dict[int, list[float]] = {FEW: [], MANY: []}
    with Ledger.open(folder / "async.db") as ledger:
        for _ in range(ROUNDS):
            for count, found in late.items():
                gc.collect()
                found.append(asyncio.run(_lateness(ledger, count)))
        completed = sum(run.status == "completed" for run in ledger.runs())
    few, many = statistics.median(late[FEW]), statistics.median(late[MANY])
    name = f"an event loop with {MANY} runs"
    detail = f"{MANY} runs {many * 1000:.1f} ms, {FEW} runs {few * 1000:.1f} ms"
    yield Result(f"{name}: milliseconds late, p99", many * 1000, 50, at_least=False, detail=detail)
    yield Result(f"{name}: as late as with {FEW}, p99", many / few, 3, at_least=False)
    expected = ROUNDS * 2 * MANY
    yield Result(f"{name}: share of runs recorded", completed / expected, 1, at_least=True)


async def _lateness(ledger: Ledger, count: int) -> float:
    """The 99th percentile of how late a tick is, in seconds, while so many runs go on at once.

    There are as many runs in all, so that a percentile means the same.
    """
    ticks: list[float] = []
    ticker = asyncio.create_task(_tick(ticks))
    for _ in range(MANY // count):
        await asyncio.gather(*(_run(ledger) for _ in range(count)))
    ticker.cancel()
    return statistics.quantiles(ticks, n=100)[-1]


async def _run(ledger: Ledger) -> None:
    def work() -> None:
        loop = _Clerk(adapter=_Awaited(model="m"), bus=InProcessEventBus(), ledger=ledger)
        loop.execute(Order())

    await run_async(work)


async def _tick(ticks: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK
        await asyncio.sleep(TICK)
        ticks.append(loop.time() - due)
