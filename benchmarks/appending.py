"""What an append costs on SQLite, against bare sqlite3 writing the same rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar
from uuid import UUID

from benchmarks.measuring import Result, speed
from benchmarks.raw_sqlite import RawWriter
from benchmarks.workload import events, one_turn
from turnledger.ledger import ANY, Ledger, new_run_id
from turnledger.ledger.events.types import Event

T = TypeVar("T")
COMMITS = 200
BATCHES, BATCH = 20, 100
RUNS, EACH = 128, 20


def measure(folder: Path) -> Iterator[Result]:
    name = "append, one event a commit, one run"
    yield _against_raw(folder, name, 0.8, commits=COMMITS, size=1)
    yield _against_raw(folder, "append, batches of 100", 0.6, commits=BATCHES, size=BATCH)
    yield _many_runs(folder)
    yield from _late_against_early(folder)


def _against_raw(folder: Path, name: str, bar: float, *, commits: int, size: int) -> Result:
    """Commits of this many events, against the same rows written by bare sqlite3."""
    raw = RawWriter(folder / f"raw-{size}.db")
    with Ledger.open(folder / f"ours-{size}.db") as ledger:
        run = new_run_id()
        batches = _cut(list(events(commits * size)), size)

        def ours() -> None:
            for batch in batches:
                ledger.append(run, batch, ANY)

        rounds = iter([_cut(raw.rows(commits * size), size) for _ in range(16)])

        def theirs() -> None:
            for rows in next(rounds):
                raw.commit(rows)

        ratio = speed(ours, theirs)
    raw.db.close()
    return Result(name, ratio, bar, at_least=True)


def _cut(made: list[T], size: int) -> list[list[T]]:
    return [made[place : place + size] for place in range(0, len(made), size)]


def _many_runs(folder: Path) -> Result:
    raw = RawWriter(folder / "raw-many.db")
    batch: list[Event] = (one_turn() * EACH)[:EACH]
    with (
        Ledger.open(folder / "many.db") as ledger,
        ThreadPoolExecutor(RUNS) as pool,
    ):

        def one_run(_: int) -> None:
            run = new_run_id()
            for event in batch:
                ledger.append(run, event, ANY)

        def ours() -> None:
            list(pool.map(one_run, range(RUNS)))

        rounds = iter([[[row] for row in raw.rows(RUNS * EACH)] for _ in range(6)])

        def theirs() -> None:
            for rows in next(rounds):
                raw.commit(rows)

        ratio = speed(ours, theirs, rounds=5)
    raw.db.close()
    return Result("128 concurrent runs, against one raw writer", ratio, 2.5, at_least=True)


def _late_against_early(folder: Path) -> Iterator[Result]:
    """The same append at the beginning of a run and after 50,000 events."""
    path = folder / "late.db"
    wal = Path(f"{path}-wal")
    with Ledger.open(path) as ledger:
        early, late = new_run_id(), new_run_id()
        batch = list(events(500))
        for _ in range(100):
            ledger.append(late, batch, ANY)
        ledger.append(early, list(events(50)), ANY)
        turn = one_turn()
        cost: dict[UUID, list[float]] = {early: [], late: []}
        statements: dict[UUID, list[int]] = {early: [], late: []}
        pages: dict[UUID, list[float]] = {early: [], late: []}
        writer = ledger.store._writer  # type: ignore[attr-defined]
        # Which run comes when is shuffled: a new page falls due every few events, and must
        # not always hit the same run.
        order = [early, late] * 700
        Random(7).shuffle(order)
        for number, run in enumerate(order):
            seen: list[str] = []
            counted = number % 3 == 0  # counted apart from the timed ones
            if counted:
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                writer.set_trace_callback(seen.append)
            event = turn[number % len(turn)]
            started = time.perf_counter()
            ledger.append(run, event, ANY)
            passed = time.perf_counter() - started
            writer.set_trace_callback(None)
            if counted:
                statements[run].append(sum("wal_checkpoint" not in text for text in seen))
                pages[run].append((wal.stat().st_size - 32) / (4096 + 24))
            else:
                cost[run].append(passed)
    more = max(statements[late]) - max(statements[early])
    pages_more = statistics.mean(pages[late]) - statistics.mean(pages[early])
    yield Result(
        "statements at event 50,000, more than at 50",
        more,
        0,
        at_least=False,
        detail=f"{max(statements[late])} statements",
    )
    yield Result(
        "WAL pages at event 50,000, more than at 50",
        pages_more,
        1,
        at_least=False,
        detail=f"{statistics.mean(pages[late]):.1f} pages",
    )
    yield Result(
        "time at event 50,000 against 50",
        statistics.median(cost[late]) / statistics.median(cost[early]),
        1.2,
        at_least=False,
    )
