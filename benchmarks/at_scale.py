"""The figures that docs/explanation/at-scale.md computes with, measured on a real PostgreSQL.

Costs are seconds of the server's processors, all its processes together, so that other programs
on the machine matter less; none of them has a goal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.measuring import Result
from benchmarks.processor_time import server_seconds
from benchmarks.workload import events, run_of
from tests.postgres import PostgresServer
from tests.servers.ledger_server import LedgerServer
from turnledger.adapters.http import LedgerClient
from turnledger.ledger import ANY, NEW, Ledger, RunStarted, Tokens, new_run_id
from turnledger.ledger.integrity.seal import make_seal

RUNS, EACH = 2_000, 100
APPENDS, BEATS, CLAIMS, POLLS = 4_000, 4_000, 1_000, 500
WRITERS = 8
SETTINGS = {"shared_buffers": "'256MB'"}
SIZES = """SELECT c.relname, pg_table_size(c.oid) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE nspname = 'turnledger' AND relkind IN ('r', 'i')"""
LOG = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"


def measure(folder: Path) -> Iterator[Result]:
    with (
        PostgresServer(SETTINGS) as server,
        psycopg.connect(server.url(), autocommit=True) as db,
        Ledger.open(server.url()) as ledger,
    ):
        site = _Site(server, db, ledger)
        yield from site.sizes()
        yield from site.appends()
        yield from site.http_appends()
        yield from site.claims()
        yield from site.connections()
        yield from site.following()
        yield from site.seals()


def _figure(name: str, value: float, detail: str = "") -> Result:
    return Result(name, value, None, at_least=True, detail=detail)


class _Spent:
    """What a block took: the server's and this process's processor, its log, the time."""

    server = here = wall = 0.0
    log = 0


class _Site:
    def __init__(self, server: PostgresServer, db: psycopg.Connection[Any], ledger: Ledger) -> None:
        self.server, self.db, self.ledger = server, db, ledger
        self.postmaster = psutil.Process(server.pid)
        self.runs = [new_run_id() for _ in range(RUNS)]

    @contextmanager
    def spent(self) -> Iterator[_Spent]:
        found = _Spent()
        before = self._now()
        yield found
        server, here, wall, log = (new - old for new, old in zip(self._now(), before, strict=True))
        found.server, found.here, found.wall, found.log = server, here, wall, int(log)

    def _now(self) -> tuple[float, float, float, float]:
        log = self._one(LOG)
        return server_seconds(self.postmaster), time.process_time(), time.perf_counter(), log

    def _one(self, query: str) -> Any:
        found = self.db.execute(query).fetchone()
        assert found is not None
        return found[0]

    def sizes(self) -> Iterator[Result]:
        batch = list(run_of(EACH))
        with self.spent() as spent, ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda run: self.ledger.append(run, batch, NEW), self.runs))
        self.db.execute("VACUUM turnledger.events")
        sizes = dict(self.db.execute(SIZES).fetchall())
        indexes = {name: size for name, size in sizes.items() if name.startswith("events_")}
        count = RUNS * EACH
        text = self._one("SELECT avg(length(data))::float FROM turnledger.events")
        yield _figure("bytes an event: its JSON", text)
        yield _figure("bytes an event: table", sizes["events"] / count)
        each = ", ".join(f"{name} {size / count:.0f}" for name, size in sorted(indexes.items()))
        yield _figure("bytes an event: indexes", sum(indexes.values()) / count, each)
        runs = sum(size for name, size in sizes.items() if name.startswith("run"))
        yield _figure("bytes a run: its index rows and their indexes", runs / RUNS)
        yield _figure("bytes an event: write-ahead log, batches of 100", spent.log / count)
        yield _figure(
            "server CPU an event, µs, batches of 100",
            spent.server / count * 1e6,
            f"{count / spent.wall:.0f} events a second by {WRITERS} threads of one process",
        )

    def appends(self) -> Iterator[Result]:
        """One event a commit, by writers with a connection each."""
        each = list(events(APPENDS // WRITERS))
        with ExitStack() as stack:
            ledgers = [stack.enter_context(Ledger.open(self.server.url())) for _ in range(WRITERS)]
            with self.spent() as spent:
                self._with_threads(ledgers, lambda ledger, run: self._write(ledger, run, each))
        yield _figure(
            "server CPU an append of one event, µs",
            spent.server / APPENDS * 1e6,
            f"{APPENDS / spent.wall:.0f} appends a second by {WRITERS} writers, fsync on; "
            f"client {spent.here / APPENDS * 1e6:.0f} µs",
        )
        yield _figure("write-ahead log an append of one event, bytes", spent.log / APPENDS)

    def http_appends(self) -> Iterator[Result]:
        """The same through one HTTP server, whose appends share commits."""
        each = list(events(APPENDS // WRITERS))
        with ExitStack() as stack:
            served = stack.enter_context(Ledger.open(self.server.url()))
            http = stack.enter_context(LedgerServer(served))
            token = Tokens(served).new("writer").text
            clients = [stack.enter_context(LedgerClient(http.url, token)) for _ in range(WRITERS)]
            ids = self._one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
            with self.spent() as spent:
                self._with_threads(clients, lambda ledger, run: self._write(ledger, run, each))
            ids = self._one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint") - ids
        yield _figure(
            "CPU an append of one event over HTTP, client and server, µs",
            spent.here / APPENDS * 1e6,
            f"{APPENDS / spent.wall:.0f} a second, both in one process; PostgreSQL "
            f"{spent.server / APPENDS * 1e6:.0f} µs",
        )
        yield _figure("transactions an append over HTTP, 8 at once", ids / APPENDS)

    @staticmethod
    def _write(ledger: Ledger, run: Any, each: list[Any]) -> None:
        for event in each:
            ledger.append(run, event, ANY)

    @staticmethod
    def _with_threads(ledgers: list[Any], work: Callable[[Any, Any], None]) -> None:
        with ThreadPoolExecutor(len(ledgers)) as pool:
            list(pool.map(lambda ledger: work(ledger, new_run_id()), ledgers))

    def claims(self) -> Iterator[Result]:
        fresh = [new_run_id() for _ in range(CLAIMS)]
        for run in fresh:
            self.ledger.append(run, RunStarted(), NEW)
        with self.spent() as spent:
            held = [self.ledger.claim(run, ttl=timedelta(minutes=10)) for run in fresh]
        yield _figure("server CPU a claim, µs", spent.server / CLAIMS * 1e6)
        with self.spent() as spent:
            for number in range(BEATS):
                held[number % CLAIMS].heartbeat()
        yield _figure(
            "server CPU a heartbeat, µs",
            spent.server / BEATS * 1e6,
            f"{BEATS / spent.wall:.0f} a second, one after the other",
        )
        yield _figure("write-ahead log a heartbeat, bytes", spent.log / BEATS)
        size = self._one("SELECT pg_relation_size('turnledger.leases')")
        yield _figure("bytes of the table of leases a heartbeat, before vacuum", size / BEATS)

    def connections(self) -> Iterator[Result]:
        before = {process.pid for process in self.server.clients()}
        with Ledger.open(self.server.url()) as ledger:
            run = new_run_id()
            ledger.append(run, RunStarted(), NEW)
            ledger.claim(run)
            list(ledger.read(run))
            new = [process for process in self.server.clients() if process.pid not in before]
            memory = [process.memory_full_info().uss for process in new]
        yield _figure("connections of a worker beside PostgreSQL", len(new), "one thread")
        yield _figure("memory of a connection's process, MB", max(memory) / 2**20)

    def following(self) -> Iterator[Result]:
        with self.spent() as spent:
            count = sum(1 for _ in self.ledger.tail())
        yield _figure(
            "server CPU an event of tail, µs",
            spent.server / count * 1e6,
            f"{count / spent.wall:.0f} events a second, client {spent.here / count * 1e6:.1f} µs",
        )
        last = self.ledger.store.last_position() or 0
        with self.spent() as spent:
            for _ in range(POLLS):
                assert not self.ledger.store.rows_after(last, 500)
        yield _figure(
            "server CPU a poll of tail that finds nothing, µs", spent.server / POLLS * 1e6
        )

    def seals(self) -> Iterator[Result]:
        with self.spent() as spent:
            seal = make_seal(self.ledger, 0)
        cpu = (spent.here + spent.server) / len(seal.heads) * 1e6
        yield _figure("CPU a run of a seal, client and server, µs", cpu)
