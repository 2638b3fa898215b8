"""What an append costs on SQLite, against raw sqlite3 writing the same rows."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, TypeVar
from uuid import UUID

from benchmarks.measuring import Result, Time, cpu_ratio, in_turns, samples_ratio, speed_ratio
from benchmarks.raw_sqlite import BareWriter, FairWriter, flush_seconds
from benchmarks.workload import events, one_turn
from turnledger.ledger import ANY, AsyncLedger, Ledger, new_run_id
from turnledger.ledger.events.types import Event

T = TypeVar("T")
FAIR = "raw with id, JSON and digest"
ROUNDS = 15
# Seconds that flushing a page takes where an append is judged by wall time.
SLOW_FLUSH = 0.001
COMMITS = 200
BATCHES, BATCH = 20, 100
RUNS, EACH = 128, 20


def measure(folder: Path) -> Iterator[Result]:
    yield from _one_a_commit(folder)
    yield _batches(folder)
    yield _calls(folder)
    yield from _many_runs(folder)
    yield from _late_against_early(folder)


def _one_a_commit(folder: Path) -> Iterator[Result]:
    """By wall time where flushing takes its time, and by CPU time on any disk."""
    ours, fair, bare = _against_raw(folder, commits=COMMITS, size=1)
    flush = flush_seconds(folder)
    slow = flush >= SLOW_FLUSH
    yield Result(
        f"append, one event a commit, against {FAIR}",
        speed_ratio(ours, fair),
        0.9 if slow else None,
        at_least=True,
        detail=f"a flush takes {flush * 1e3:.2f} ms" + ("" if slow else ": no goal below 1 ms"),
        bare=speed_ratio(ours, bare),
    )
    micros = " / ".join(
        f"{statistics.median(one.cpu for one in times) / COMMITS * 1e6:.0f}"
        for times in (ours, fair, bare)
    )
    yield Result(
        f"the same, CPU time as a multiple of {FAIR}",
        cpu_ratio(ours, fair),
        1.8,
        at_least=False,
        detail=f"{micros} µs an event: ours / that / bare",
        bare=cpu_ratio(ours, bare),
    )


def _batches(folder: Path) -> Result:
    ours, fair, bare = _against_raw(folder, commits=BATCHES, size=BATCH)
    name = f"append, batches of {BATCH}, against {FAIR}"
    return Result(name, speed_ratio(ours, fair), 0.7, at_least=True, bare=speed_ratio(ours, bare))


def calls_of(act: Callable[[], object]) -> int:
    """How many Python and C functions are called, but for the look for secrets."""
    count = -2  # `act` itself, and the end of counting
    looking: FrameType | None = None

    def seen(frame: FrameType, kind: str, argument: Any) -> None:
        nonlocal count, looking
        if looking is None and kind in ("call", "c_call"):
            if kind == "call" and "/redaction/" in frame.f_code.co_filename:
                looking = frame
            else:
                count += 1
        elif kind == "return" and frame is looking:
            looking = None

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def _calls(folder: Path) -> Result:
    """A count, and no time: it says the same on every machine."""
    run, found = new_run_id(), []
    with Ledger.open(folder / "calls.db") as ledger:
        for event in one_turn():
            ledger.append(run, event, ANY)
        for event in one_turn():
            found.append(calls_of(lambda event=event: ledger.append(run, event, ANY)))  # type: ignore[misc]
    return Result(
        "calls of an append, beside the look for secrets",
        statistics.mean(found),
        60,
        at_least=False,
        detail=f"{min(found)} to {max(found)}, by the event",
    )


def _against_raw(folder: Path, *, commits: int, size: int) -> list[list[Time]]:
    """Commits of this many events: ours, and the same by both baselines."""
    fair = FairWriter(folder / f"fair-{size}.db")
    bare = BareWriter(folder / f"bare-{size}.db")
    with Ledger.open(folder / f"ours-{size}.db") as ledger:
        run = new_run_id()
        batches = _cut(list(events(commits * size)), size)
        rounds = iter([_cut(bare.rows(commits * size), size) for _ in range(ROUNDS + 1)])

        def ours() -> None:
            for batch in batches:
                ledger.append(run, batch, ANY)

        def by_fair() -> None:
            for batch in batches:
                fair.append(batch)

        def by_bare() -> None:
            for rows in next(rounds):
                bare.commit(rows)

        times = in_turns((ours, by_fair, by_bare), ROUNDS)
    fair.db.close()
    bare.db.close()
    return times


def _cut(made: list[T], size: int) -> list[list[T]]:
    return [made[place : place + size] for place in range(0, len(made), size)]


def _many_runs(folder: Path) -> Iterator[Result]:
    """128 runs at once, each in a thread, and each in a task of one event loop."""
    fair = FairWriter(folder / "fair-many.db")
    bare = BareWriter(folder / "bare-many.db")
    batch: list[Event] = (one_turn() * EACH)[:EACH]
    with (
        Ledger.open(folder / "many.db") as ledger,
        ThreadPoolExecutor(RUNS) as pool,
    ):
        awaited = AsyncLedger(ledger)

        def one_run(_: int) -> None:
            run = new_run_id()
            for event in batch:
                ledger.append(run, event, ANY)

        def by_threads() -> None:
            list(pool.map(one_run, range(RUNS)))

        async def one_task() -> None:
            run = new_run_id()
            for event in batch:
                await awaited.append(run, event, ANY)

        async def all_tasks() -> None:
            await asyncio.gather(*(one_task() for _ in range(RUNS)))

        def by_tasks() -> None:
            asyncio.run(all_tasks())

        rounds = iter([[[row] for row in bare.rows(RUNS * EACH)] for _ in range(8)])

        def by_fair() -> None:
            for event in batch * RUNS:
                fair.append((event,))

        def by_bare() -> None:
            for rows in next(rounds):
                bare.commit(rows)

        threads, tasks, fairly, barely = in_turns(
            (by_threads, by_tasks, by_fair, by_bare), rounds=7
        )
    fair.db.close()
    bare.db.close()
    for name, times in (("threads", threads), ("tasks", tasks)):
        micros = statistics.median(one.cpu for one in times) / RUNS / EACH * 1e6
        yield Result(
            f"128 concurrent runs in {name}, against one writer, {FAIR}",
            speed_ratio(times, fairly),
            4,
            at_least=True,
            detail=f"{micros:.0f} µs of CPU an append",
            bare=speed_ratio(times, barely),
        )


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
            started = time.process_time()
            ledger.append(run, event, ANY)
            passed = time.process_time() - started
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
        "CPU time at event 50,000 against 50",
        samples_ratio(cost[late], cost[early]),
        1.2,
        at_least=False,
    )
