"""Surfaces under test: every way to reach a ledger has to give the same answers.

`SURFACES` is the one list of them. A new one is a class with `_connect` and a line for each store
that it is tried on; then it has to pass all of tests/conformance/ledger, and can't opt out of a
test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

import pytest

from tests.conformance.bridge import Bridge, LoopThread
from tests.conformance.harness import STORES, StoreUnderTest, store_under_test
from tests.conformance.ledger_like import LedgerLike
from tests.servers.ledger_server import LedgerServer
from turnledger.adapters.http import AsyncLedgerClient, LedgerClient
from turnledger.adapters.http.protocol.envelopes import MOST_EVENTS
from turnledger.ledger import AsyncLedger, Clock, Ledger, Limits, Redactor, Report, Tokens
from turnledger.ledger.events.limits import BATCH_CEILING


class Settings(TypedDict, total=False):
    """How a ledger is opened, by the process that has the store: here, or a server's."""

    clock: Clock
    limits: Limits
    redactor: Redactor | None


class Surface(ABC):
    """One ledger, reached in one way; `open` gives as many handles on it as a test wants.

    Handles that were opened with the same settings may share a server.
    """

    # Whether a claim ends with its handle or its process. If not, by expiry and release alone.
    lease_ends_with_process: ClassVar[bool] = True
    # The most events in one append, where the limits allow them.
    most_events: ClassVar[int] = BATCH_CEILING

    def __init__(self, store: StoreUnderTest) -> None:
        self._store = store
        self._ended = ExitStack()

    def open(self, **settings: Unpack[Settings]) -> LedgerLike:
        """A new handle, closed with the surface."""
        ledger = self._connect(settings)
        self._ended.callback(ledger.close)
        return ledger

    @abstractmethod
    def _connect(self, settings: Settings) -> LedgerLike:
        """A new handle. What has to end after it goes on the stack `_ended`."""

    def opening(self) -> str:
        """Python source by which another process opens this ledger, as `ledger`."""
        return f"from turnledger.ledger import Ledger\nledger = Ledger.open({self._store.url!r})\n"

    def verify_all(self) -> Report:
        """The whole ledger verified in its store, whatever the surface has."""
        return self._beneath().verify_all()

    def rebuild_index(self) -> int:
        """The index of runs rebuilt in the store; how many it lists."""
        return self._beneath().rebuild_index()

    def _beneath(self) -> Ledger:
        return self._store.a_handle()

    def close(self) -> None:
        self._ended.close()


class Direct(Surface):
    """A Ledger in this process."""

    def _connect(self, settings: Settings) -> LedgerLike:
        return self._store.open(**settings)


class ThroughAsyncio(Surface):
    """An AsyncLedger in this process, on an event loop in another thread."""

    def __init__(self, store: StoreUnderTest) -> None:
        super().__init__(store)
        self._loop = self._ended.enter_context(LoopThread())

    def _connect(self, settings: Settings) -> LedgerLike:
        async def connect() -> AsyncLedger:
            return await AsyncLedger.open(self._store.url, **settings)

        return Bridge(self._loop.run(connect()), self._loop)


# A client that lets all through: it is the server's settings that count.
OF_CLIENT: Any = {
    "redactor": None,
    "limits": Limits(
        max_batch_events=BATCH_CEILING,
        max_event_bytes=2**30,
        max_batch_bytes=2**31,
        max_json_depth=200,
        max_blob_bytes=2**31,
    ),
}


class OverHttp(Surface):
    """A LedgerClient of a server in this process, on a real socket.

    The settings are the server's: there is one server for each choice of them.
    """

    lease_ends_with_process = False
    most_events = MOST_EVENTS

    def __init__(self, store: StoreUnderTest) -> None:
        super().__init__(store)
        self._servers: dict[tuple[tuple[str, int], ...], LedgerServer] = {}
        # By the system's clock, and not by one that a test counts.
        with Ledger.open(store.url) as ledger:
            self._token = Tokens(ledger).new("admin").text

    def _connect(self, settings: Settings) -> LedgerLike:
        return LedgerClient(self._serve(settings).url, self._token, **OF_CLIENT)

    def _serve(self, settings: Settings) -> LedgerServer:
        choice = tuple(sorted((name, id(value)) for name, value in settings.items()))
        if choice not in self._servers:
            server = LedgerServer(self._store.open(**settings))
            self._servers[choice] = self._ended.enter_context(server)
        return self._servers[choice]

    def opening(self) -> str:
        url = self._serve({}).url
        return (
            "from turnledger.adapters.http import LedgerClient\n"
            f"ledger = LedgerClient({url!r}, {self._token!r})\n"
        )


class OverHttpThroughAsyncio(OverHttp):
    """An AsyncLedgerClient of such a server, on an event loop in another thread."""

    def __init__(self, store: StoreUnderTest) -> None:
        super().__init__(store)
        self._loop = self._ended.enter_context(LoopThread())

    def _connect(self, settings: Settings) -> LedgerLike:
        url = self._serve(settings).url
        client = AsyncLedgerClient(url, self._token, **OF_CLIENT)
        return Bridge(client, self._loop)


class Way(NamedTuple):
    """A surface on a store."""

    surface: type[Surface]
    store: str
    marks: tuple[Any, ...] = ()


SURFACES: dict[str, Way] = {
    **{name: Way(Direct, name) for name in STORES},
    "async-sqlite": Way(ThroughAsyncio, "sqlite"),
    "async-memory": Way(ThroughAsyncio, "memory", (pytest.mark.full,)),
    "async-postgres": Way(ThroughAsyncio, "postgres", (pytest.mark.full,)),
    "http-sqlite": Way(OverHttp, "sqlite"),
    "http-postgres": Way(OverHttp, "postgres", (pytest.mark.full,)),
    "async-http-sqlite": Way(OverHttpThroughAsyncio, "sqlite", (pytest.mark.full,)),
    "async-http-postgres": Way(OverHttpThroughAsyncio, "postgres", (pytest.mark.full,)),
}


def surface_names(*, processes: bool = False) -> list[Any]:
    """All surfaces, or those on stores that several processes can use, for `parametrize`."""
    return [
        pytest.param(name, marks=way.marks, id=name)
        for name, way in SURFACES.items()
        if STORES[way.store].reaches_processes or not processes
    ]


@contextmanager
def surface_under_test(name: str, folder: Path) -> Iterator[Surface]:
    """An empty ledger behind a surface."""
    way = SURFACES[name]
    with store_under_test(way.store, folder) as store:
        surface = way.surface(store)
        try:
            yield surface
        finally:
            surface.close()
