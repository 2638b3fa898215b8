"""How writers on PostgreSQL share slow commits: eight of them against one.

The server is real, and its commits are made 10 ms slow (commit_delay), as on a disk
or a standby far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measuring import Figure, Result, taken
from benchmarks.workload import events
from tests.postgres import PostgresServer
from turnledger.ledger import ANY, Ledger, new_run_id

WRITERS, EACH, ROUNDS = 8, 40, 5
SLOW = {"commit_delay": "10000", "commit_siblings": "0"}


def measure(folder: Path) -> Iterator[Result]:
    with PostgresServer(SLOW) as server, ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(server.url())) for _ in range(WRITERS)]
        yield Result(
            "PostgreSQL, 10 ms commits, 8 writers against 1",
            _ratio(lambda number: ledgers[number]),
            6,
            at_least=True,
            detail="a connection each",
        )
        yield Result(
            "PostgreSQL, 10 ms commits, 8 threads against 1",
            _ratio(lambda number: ledgers[0]),
            6,
            at_least=True,
            detail="one connection",
        )


def _ratio(ledger_of: Callable[[int], Ledger]) -> Figure:
    batch = list(events(EACH))

    def write(number: int) -> None:
        ledger, run = ledger_of(number), new_run_id()
        for event in batch:
            ledger.append(run, event, ANY)

    write(0)
    with ThreadPoolExecutor(WRITERS) as pool:
        alone, ratios = [], []
        for _ in range(ROUNDS):
            alone.append(taken(lambda: write(0)).wall)
            together = taken(lambda: list(pool.map(write, range(WRITERS)))).wall
            ratios.append(alone[-1] * WRITERS / together)
    return Figure.of(ratios, alone)
