"""What everyday work costs in a ledger of 10,000 events, and of many times as many.

CPU time, of PostgreSQL's own processes too. The ledgers are there side by side, and each piece of
work is done in all of them in turns. Runs have the same length everywhere: only the ledger grows.
"""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
from rich.console import Console

from benchmarks.filling import ENDED, EVENTS, OPEN_CALL, customer, fill_postgres, fill_sqlite
from benchmarks.measuring import Result, Work, cpu_ratio, in_turns, own_cpu
from benchmarks.workload import one_turn
from tests.postgres import ROOT, PostgresServer, eventually
from turnledger.ledger import ANY, Ledger, RunInfo, new_run_id
from turnledger.projections import state_at
from turnledger.runtime.recovery.doubts import decide

SMALLEST = 10_000
# What `make bench` does on SQLite, and `make scale` on PostgreSQL.
BRIEFLY, SCALE = 100_000, 10_000_000
MOST = 1.5
ROUNDS, TIMES = 15, 10
PAGE, TAIL = 50, 100
SAMPLE, FORKS, VERIFIED = 80, 5, 20
# Bytes that an event takes in PostgreSQL with its indexes, and what its log may take.
EVENT_BYTES, LOG_BYTES = 1_000, 4 * 2**30
# Only CPU time is measured, so no time is spent on the disk.
SETTINGS = {"fsync": "off", "shared_buffers": "'1GB'", "max_wal_size": "'4GB'"}


class Filled:
    """A ledger with so many events, and a choice of its runs."""

    def __init__(self, ledger: Ledger, events: int, runs: Sequence[str]) -> None:
        self.ledger = ledger
        self.events = events
        self._random = random.Random(20)
        # As many in each ledger, from all over it: what was read once is remembered.
        still_open = [run for number, run in enumerate(runs) if number % ENDED]
        self._runs = [still_open[len(still_open) * at // SAMPLE] for at in range(SAMPLE)]
        self.middle: RunInfo = ledger.run(runs[len(runs) // 2])
        self.customer = customer(len(runs) // 2)
        self.own = new_run_id()
        for _ in range(FORKS):
            ledger.fork(runs[0], at=EVENTS)
        self.parent = runs[0]
        sample = self._random.sample(runs, VERIFIED)
        assert all(ledger.verify(run).ok for run in sample), "these are not valid runs"

    def any_run(self) -> str:
        """One of a sample; it has a call whose outcome is unknown."""
        return self._random.choice(self._runs)


def append_own(filled: Filled) -> None:
    filled.ledger.append(filled.own, one_turn()[0], ANY)


def append_any(filled: Filled) -> None:
    filled.ledger.append(filled.any_run(), one_turn()[0], ANY)


def tail(filled: Filled) -> None:
    store = filled.ledger.store
    (*_, (after, *_)) = store.rows_before(2**62, TAIL + 1)
    assert sum(1 for _ in filled.ledger.tail(after)) == TAIL


def poll(filled: Filled) -> None:
    store = filled.ledger.store
    assert not store.confirmed_rows_after(store.last_position() or 0, PAGE)


def runs(filled: Filled) -> None:
    assert len(list(filled.ledger.runs(limit=PAGE))) == PAGE


def runs_from_the_middle(filled: Filled) -> None:
    assert len(list(filled.ledger.runs(before=filled.middle, limit=PAGE))) >= PAGE - 1


def runs_of_a_status(filled: Filled) -> None:
    assert list(filled.ledger.runs(status="completed", limit=5))


def runs_of_an_agent(filled: Filled) -> None:
    assert len(list(filled.ledger.runs(agent="clerk-1", limit=PAGE))) == PAGE


def runs_of_a_customer(filled: Filled) -> None:
    assert len(list(filled.ledger.runs(tags={"customer": filled.customer}, limit=PAGE))) == 10


def runs_of_a_prompt(filled: Filled) -> None:
    assert len(list(filled.ledger.runs(prompt="billing/reconcile-1", limit=5))) == 5


def forks_of_a_run(filled: Filled) -> None:
    assert len(list(filled.ledger.runs(parent=filled.parent, limit=PAGE))) == FORKS


def state(filled: Filled) -> None:
    assert state_at(filled.ledger, filled.any_run()).version >= EVENTS


def claim(filled: Filled) -> None:
    with filled.ledger.claim(filled.any_run()):
        pass


def resolve_call(filled: Filled) -> None:
    decide(filled.ledger, filled.any_run(), OPEN_CALL, "retry")


def resolve_end_of_id(filled: Filled) -> None:
    run = filled.any_run()
    assert run in {str(one.run_id) for one in filled.ledger.runs(id_part=run[-8:], limit=11)}


def resolve_beginning_of_id(filled: Filled) -> None:
    run = filled.any_run()
    assert run in {str(one.run_id) for one in filled.ledger.runs(id_part=run[:24], limit=11)}


STEPS: dict[str, Callable[[Filled], None]] = {
    "append to one run": append_own,
    "append to any run": append_any,
    f"tail, the last {TAIL} events": tail,
    "tail, a follower's poll": poll,
    f"runs, a page of {PAGE}": runs,
    "runs, a page from the middle": runs_from_the_middle,
    "runs of a status": runs_of_a_status,
    "runs of an agent": runs_of_an_agent,
    "runs of a customer (tag)": runs_of_a_customer,
    "runs of a prompt": runs_of_a_prompt,
    "runs, forks of one": forks_of_a_run,
    f"state of a run of {EVENTS} events": state,
    "claim and release a run": claim,
    "resolve a call in doubt": resolve_call,
    "resolve a run by the end of its id": resolve_end_of_id,
    "resolve a run by the beginning of its id": resolve_beginning_of_id,
}


def measure(folder: Path, events: int = BRIEFLY) -> Iterator[Result]:
    """On SQLite, up to so many events."""
    with ExitStack() as stack:
        filled = []
        for size in _sizes(events):
            path = folder / f"growth-{size}.db"
            ids = fill_sqlite(path, size)
            filled.append(Filled(stack.enter_context(Ledger.open(path)), size, ids))
        yield from _compared(filled, "SQLite", own_cpu)


def measure_scale(folder: Path, events: int = SCALE) -> Iterator[Result]:
    """On PostgreSQL, up to so many events."""
    need = sum(_sizes(events)) * EVENT_BYTES + LOG_BYTES
    free = shutil.disk_usage(ROOT).free
    minutes = 5 + events // 300_000
    Console().print(
        f"Fills ledgers of up to {events:,} events in a PostgreSQL of its own in {ROOT}, and "
        f"removes it: needs {need / 1e9:.0f} GB there ({free / 1e9:.0f} GB are free) and about "
        f"{minutes} minutes."
    )
    if free < need:
        raise SystemExit(f"Not enough room in {ROOT}. Set TMPDIR, or --events.")
    with PostgresServer(SETTINGS) as server, ExitStack() as stack:
        filled = []
        for size in _sizes(events):
            ids = fill_postgres(server.url(), f"e{size}", size)
            ledger = stack.enter_context(Ledger.open(f"{server.url()}&schema=e{size}"))
            filled.append(Filled(ledger, size, ids))
            Console().print(f"{size:,} events are there.", style="dim")
        backends = Backends(server)
        cpu = backends.seconds
        yield from _compared(filled, "PostgreSQL", lambda: own_cpu() + cpu(), backends.look)
        stack.close()
        _show_size(server)
    eventually(lambda: not server.folder.exists(), seconds=120)


def _sizes(largest: int) -> list[int]:
    sizes = [SMALLEST]
    while sizes[-1] * 10 <= largest:
        sizes.append(sizes[-1] * 10)
    return sizes


class Backends:
    """The CPU time of a server's processes that serve connections, by the kernel's count."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._pids: list[int] = []

    def look(self) -> None:
        """Find them again: a ledger connects when it needs to."""
        self._pids = [process.pid for process in self._server.clients()]

    def seconds(self) -> float:
        nanoseconds = 0
        for pid in self._pids:
            nanoseconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return nanoseconds / 1e9


def _compared(
    filled: Sequence[Filled], where: str, cpu: Callable[[], float], ready: Work = lambda: None
) -> Iterator[Result]:
    """Each piece of work in all ledgers: the largest ratio to the smallest ledger."""
    for name, step in STEPS.items():
        for one in filled:
            step(one)
        ready()
        works = [partial(_repeat, step, one) for one in filled]
        times = in_turns(works, ROUNDS, cpu)
        figures = [cpu_ratio(larger, times[0]) for larger in times[1:]]
        micros = " / ".join(
            f"{statistics.median(one.cpu for one in taken) / TIMES * 1e6:.0f}" for taken in times
        )
        sizes = " / ".join(f"{one.events:,}" for one in filled)
        yield Result(
            f"growth, {where}: {name}",
            max(figures, key=lambda figure: figure.median),
            MOST,
            at_least=False,
            detail=f"{micros} µs of CPU at {sizes} events",
        )


def _repeat(step: Callable[[Filled], None], filled: Filled) -> None:
    for _ in range(TIMES):
        step(filled)


def _show_size(server: PostgresServer) -> None:
    with psycopg.connect(server.url()) as db:
        found = db.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    Console().print(f"The database has {found[0] / 1e9:.1f} GB.", style="dim")
