"""Event streams in one event loop whose every step the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnledger.adapters.http.live import broadcast, history
from turnledger.adapters.http.live.broadcast import Broadcast
from turnledger.adapters.http.live.history import LedgerHistory, RunHistory
from turnledger.adapters.http.live.messages import Message
from turnledger.adapters.http.routes.streams import EventStream
from turnledger.adapters.http.served import Served
from turnledger.adapters.http.work import Work
from turnledger.ledger import ANY, CustomEvent, Ledger

R = TypeVar("R")
RUNS = [UUID(int=1), UUID(int=2)]
# Small, so that short examples meet every limit.
QUEUE, PAGE = 4, 2


class Told(Broadcast):
    """A broadcast that publishes when the test says so."""

    async def begin(self) -> None:
        """There is no thread."""


class SteppedWork(Work):
    """Reads when the client may take a step."""

    def __init__(self, step: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._step = step

    async def read(self, call: Callable[[], R]) -> R:
        await self._step()
        return call()


class Client:
    """A client that comes back with the last id it got whenever its stream ends."""

    def __init__(self, served: Served, run: UUID | None, after: int) -> None:
        self.run, self.after, self.last = run, after, after
        self.seen: list[tuple[int, str]] = []
        self.ends = 0
        self._steps = asyncio.Semaphore(0)
        self._served = copy(served)
        self._served.work = SteppedWork(self._steps.acquire)
        self.task = asyncio.create_task(self._stay())

    def step(self) -> None:
        """Let it do one thing: a page read from the store, or a chunk sent."""
        self._steps.release()

    async def _stay(self) -> None:
        while True:
            ledger = self._served.ledger
            past = LedgerHistory(ledger) if self.run is None else RunHistory(ledger, str(self.run))
            await EventStream(self._served, past, self.last)({}, self._receive, self._send)
            self.ends += 1

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        if not message.get("more_body"):
            return  # the head and the end
        await self._steps.acquire()
        for event in message["body"].decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines() if line[:1] != ":")
            if "data" in fields:
                told = msgspec.json.decode(fields["data"])
                self.seen.append((int(fields["id"]), told["event_id"]))
                self.last = int(fields["id"])


async def settle() -> None:
    """Until nothing more happens without a step."""
    for _ in range(12):
        await asyncio.sleep(0)


def steps() -> st.SearchStrategy[list[tuple[str, int]]]:
    """What happens, and to whom or how often."""
    words = ("join", "append", "publish", "news", "news", "step", "step", "catch up")
    return st.lists(st.tuples(st.sampled_from(words), st.integers(0, 11)), min_size=10, max_size=40)


async def play(ledger: Ledger, script: list[tuple[str, int]]) -> list[Client]:
    """All clients after a script, and after all of it was published and read."""
    served = Served(ledger)
    told = served.broadcast = Told(ledger)
    clients: list[Client] = []

    def append(number: int) -> None:
        events = [CustomEvent(kind="test.note")] * (number // 2 + 1)
        ledger.append(RUNS[number % 2], events, ANY)

    def publish(count: int) -> None:
        records = list(ledger.tail(told.position))[:count]
        told.publish(map(Message, records))

    for word, number in script:
        match word:
            case "append":
                append(number)
            case "publish":
                publish(number)
            case "news":
                append(number)
                publish(1000)
            case "join":
                # Any place, also above what was published: another server told the client.
                run = [None, *RUNS][number % 3]
                if run is None or ledger.head(run):
                    clients.append(Client(served, run, number // 3))
            case "step" | "catch up" if clients:
                for _ in range(1 if word == "step" else 20):
                    clients[number % len(clients)].step()
                    await settle()
        await settle()
    publish(1000)
    recorded = list(ledger.tail())
    for client in clients:
        for _ in range(3 * len(recorded) + 9):
            client.step()
            await settle()
        client.task.cancel()
    return clients


# News between the last page of history and joining; and while a queue is full.
@example([("news", 0), ("join", 0), ("step", 0), ("step", 0), ("news", 0), ("catch up", 0)])
@example([("news", 0), ("join", 0), ("catch up", 0), *[("news", 4)] * 3, ("catch up", 0)])
@given(steps())
def test_clients_miss_nothing_and_get_nothing_twice(script: list[tuple[str, int]]) -> None:
    """Whatever the order of appends, publishing, joining and reading, and however slow a client
    is: it gets each record above its position once, in order."""
    with pytest.MonkeyPatch.context() as patch, Ledger.open("memory://") as ledger:
        patch.setattr(broadcast, "QUEUE", QUEUE)
        patch.setattr(history, "PAGE", PAGE)
        clients = asyncio.run(play(ledger, script))
        recorded = list(ledger.tail())
    for client in clients:
        assert client.seen == [
            (record.position, str(record.event_id))
            for record in recorded
            if record.position > client.after and client.run in (None, record.run_id)
        ]
