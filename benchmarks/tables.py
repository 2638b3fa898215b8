"""What tables over all runs cost: processes against one, batches against single events."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.measuring import Result, family_cpu, speed
from benchmarks.workload import run_of
from turnledger.ledger import NEW, Ledger, new_run_id
from turnledger.projections import ToolStatistics, catch_up, rebuild

RUNS, EVENTS = 400, 1000
FEW = 1000


def measure(folder: Path) -> Iterator[Result]:
    with Ledger.open(folder / "tables.db") as ledger:
        batch = list(run_of(EVENTS))
        for _ in range(RUNS):
            ledger.append(new_run_id(), batch, NEW)
        yield _processes(ledger)
    yield _batches(folder)


def _processes(ledger: Ledger) -> Result:
    """With workers that are there already, as a cluster's are: starting them is not counted."""
    table = ToolStatistics()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as two:
        rebuild(ledger, table, executor=two, workers=2)
        ratio = speed(
            lambda: rebuild(ledger, table, executor=two, workers=2),
            lambda: rebuild(ledger, table),
            rounds=5,
            cpu=family_cpu,
        )
    return Result("rebuild a table, 2 processes against 1", ratio, 1.6, at_least=True)


def _batches(folder: Path) -> Result:
    """The same code and the same events, 500 a commit and one a commit."""
    with Ledger.open(folder / "batches.db") as ledger:
        ledger.append(new_run_id(), list(run_of(FEW)), NEW)
        table = ToolStatistics()

        def taken(batch: int) -> None:
            ledger.derived_data(f"table:{table.name}").drop()
            assert catch_up(ledger, table, batch=batch) == FEW

        ratio = speed(lambda: taken(500), lambda: taken(1), rounds=5)
    return Result("catch up, 500 events a commit against 1", ratio, 20, at_least=True)
