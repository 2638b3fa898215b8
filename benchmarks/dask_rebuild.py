"""Rebuild by Dask over PostgreSQL: 1, 2 and 4 worker processes; then 4, of which one is killed.

Every table has to be the one that this process makes, to the byte. Processor time is that of all
processes: workers, this one with the scheduler in it, and those of the server.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from distributed import Client, LocalCluster

from benchmarks.measuring import Result
from benchmarks.processor_time import process_seconds, server_seconds
from benchmarks.workload import run_of
from tests.postgres import FAST, PostgresServer
from turnledger.ledger import NEW, Ledger, new_run_id
from turnledger.projections import ToolStatistics, rebuild

RUNS, EACH = 10_000, 100
CREWS, ROUNDS = (1, 2, 4), 3
SMALL_RUNS = 100
TABLE = ToolStatistics()
# Of what a server and its backends write at once, nothing is measured here.
SETTINGS = {**FAST, "shared_buffers": "'256MB'", "max_wal_size": "'4GB'"}


@dataclass(frozen=True)
class Cost:
    """What one rebuild took: seconds, seconds of processor, and memory of the largest worker."""

    wall: float
    workers: float
    here: float
    server: float
    memory: int

    @property
    def cpu(self) -> float:
        return self.workers + self.here + self.server

    def __str__(self) -> str:
        each = 1e6 / (RUNS * EACH)
        return (
            f"{self.wall:.1f} s; CPU per event {self.cpu * each:.1f} µs (workers "
            f"{self.workers * each:.1f}, client and scheduler {self.here * each:.1f}, PostgreSQL "
            f"{self.server * each:.1f}); {self.memory >> 20} MB a worker"
        )


def measure(folder: Path) -> Iterator[Result]:
    with PostgresServer(SETTINGS) as server, Ledger.open(server.url()) as ledger:
        _fill(ledger, RUNS)
        with Ledger.open(f"{server.url()}&schema=small") as small:
            _fill(small, SMALL_RUNS)
        data = ledger.derived_data(f"table:{TABLE.name}")
        rebuild(ledger, TABLE)
        expected = data.snapshot()
        costs: dict[int, list[Cost]] = {workers: [] for workers in CREWS}
        same = 0
        for _ in range(ROUNDS):
            for workers in CREWS:
                data.drop()
                costs[workers].append(_rebuild(server, ledger, workers))
                same += data.snapshot() == expected
        data.drop()
        killed = _rebuild(server, ledger, CREWS[-1], kills=True)
        same += data.snapshot() == expected
    yield Result(
        f"rebuild {RUNS * EACH:,} events by Dask: tables that are the same to the byte",
        same,
        len(CREWS) * ROUNDS + 1,
        at_least=True,
        detail=f"the last by {CREWS[-1]} workers of which one was killed: {killed}",
    )
    for workers, found in costs.items():
        middle = sorted(found, key=lambda cost: cost.cpu)[ROUNDS // 2]
        rate = RUNS * EACH / middle.wall / workers
        name = f"rebuild by Dask, events a second and worker, {workers} workers"
        yield Result(name, rate, None, at_least=True, detail=str(middle))
    yield Result(
        "rebuild by Dask, time of 2 workers against 1",
        _ratio([cost.wall for cost in costs[2]], [cost.wall for cost in costs[1]]),
        0.75,
        at_least=False,
        detail=f"{os.cpu_count()} cores",
    )
    yield Result(
        "rebuild by Dask, CPU per event of 4 workers against 1",
        _ratio([cost.cpu for cost in costs[4]], [cost.cpu for cost in costs[1]]),
        1.2,
        at_least=False,
    )


def _ratio(many: list[float], one: list[float]) -> float:
    """The median of rounds that were taken in turns."""
    return statistics.median(a / b for a, b in zip(many, one, strict=True))


def _fill(ledger: Ledger, runs: int) -> None:
    batch = list(run_of(EACH))
    with ThreadPoolExecutor(16) as pool:  # they share commits
        for _ in pool.map(lambda _: ledger.append(new_run_id(), batch, NEW), range(runs)):
            pass


def _rebuild(server: PostgresServer, ledger: Ledger, workers: int, *, kills: bool = False) -> Cost:
    """Rebuild with so many new worker processes; starting them is not counted."""
    with (
        Ledger.open(f"{server.url()}&schema=small") as small,
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        crew = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        executor = client.get_executor(pure=False)
        # What a worker imports and compiles for its first portion is of its start.
        rebuild(small, TABLE, executor=executor, workers=workers)
        watch = _Watch(server, crew)
        largest = 0

        def progress(done: int, total: int) -> None:
            nonlocal kills, largest
            largest = max(largest, *(_memory(process) for process in crew))
            if kills and done * 3 > total:
                kills = False
                watch.look()
                crew[0].kill()

        rebuild(ledger, TABLE, executor=executor, workers=workers, progress=progress)
        return watch.cost(largest)


class _Watch:
    """Processor time of processes since it was made; that of one that died, up to the last look."""

    def __init__(self, server: PostgresServer, crew: list[psutil.Process]) -> None:
        self._server, self._crew = psutil.Process(server.pid), crew
        self._spent: dict[psutil.Process, float] = {}
        self.look()
        self._before = sum(self._spent.values())
        self._backends = server_seconds(self._server)
        self._here, self._started = time.process_time(), time.perf_counter()

    def look(self) -> None:
        for process in self._crew:
            with suppress(psutil.NoSuchProcess):
                self._spent[process] = process_seconds(process)

    def cost(self, memory: int) -> Cost:
        wall, here = time.perf_counter() - self._started, time.process_time() - self._here
        self.look()
        workers = sum(self._spent.values()) - self._before
        return Cost(wall, workers, here, server_seconds(self._server) - self._backends, memory)


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0
