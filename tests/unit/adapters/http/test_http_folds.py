"""Folds of the server beside everything else that it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from queue import Queue
from threading import Event as Flag
from threading import Semaphore
from uuid import UUID

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.servers.ledger_server import PATIENCE, LedgerServer, served_ledger
from turnledger.adapters.http.work import FOLDS, READS, ClientGoneError
from turnledger.ledger import ANY, CustomEvent, Ledger

pytestmark = pytest.mark.process
RUN = UUID(int=1)
# More than may run at once, and more than there are threads for reads.
COUNT = READS + FOLDS


@pytest.fixture
def served() -> Iterator[LedgerServer]:
    with served_ledger() as served:
        served.ledger.append(RUN, [CustomEvent(kind="test.note")] * 3, ANY)
        yield served


def add_fold(served: LedgerServer, call: Callable[[Flag], None]) -> None:
    """A route `/fold` whose fold is this call."""

    async def fold(request: Request) -> Response:
        await served.app.served.work.fold(request, call)
        return Response("folded")

    served.app.api.add("GET", "/fold", fold, role="reader", answers={})


def test_folds_never_make_a_page_of_events_wait(served: LedgerServer) -> None:
    """While as many folds as may are under way, and more wait, a page of events is answered."""
    begun, go_on = Semaphore(0), Flag()

    def call(gone: Flag) -> None:
        begun.release()
        assert go_on.wait(PATIENCE)

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            base_url=served.url, headers=served.headers, timeout=PATIENCE
        ) as http:
            folds = [asyncio.create_task(http.get("/fold")) for _ in range(COUNT)]
            for _ in range(FOLDS):
                assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
            page = await http.get(f"/v1/runs/{RUN}/events")
            assert not any(fold.done() for fold in folds)
            go_on.set()
            return [page, *await asyncio.gather(*folds)]

    add_fold(served, call)
    try:
        page, *folded = asyncio.run(ask())
    finally:
        go_on.set()
    assert len(page.json()["events"]) == 3
    assert [answer.text for answer in folded] == ["folded"] * COUNT


def test_a_client_that_has_gone_ends_its_fold(served: LedgerServer) -> None:
    """When the connection is closed, the fold is told, and its place is free for the next one."""
    begun, told = Semaphore(0), Queue[bool]()

    def call(gone: Flag) -> None:
        begun.release()
        told.put(gone.wait(PATIENCE))

    add_fold(served, call)
    for _ in range(2 * FOLDS):
        connection = served.connect("/fold")
        assert begun.acquire(timeout=PATIENCE)
        connection.close()
        assert told.get(timeout=PATIENCE)


def test_a_client_that_has_gone_ends_the_reading_of_a_run(served: LedgerServer) -> None:
    """A fold that reads a run again and again ends when its client has gone."""
    begun, ended = Semaphore(0), Queue[type[BaseException] | None]()

    def call(ledger: Ledger) -> None:
        try:
            while True:
                list(ledger.read(RUN))
                begun.release()
        except BaseException as error:
            ended.put(type(error))
            raise

    async def fold(request: Request) -> Response:
        await served.app.served.fold(request, call)
        return Response("never")

    served.app.api.add("GET", "/fold", fold, role="reader", answers={})
    connection = served.connect("/fold")
    assert begun.acquire(timeout=PATIENCE)
    connection.close()
    assert ended.get(timeout=PATIENCE) is ClientGoneError
