"""What a very long run costs: memory and time of everything that is done with it, at N and at N/10.

`python -m benchmarks long_run --events 1000000` is the whole measurement. What only passes the
events on may not take more memory for ten times as many; what holds a state may take as much more
as the state holds, and nothing may take more time for an event.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from benchmarks.long_events import write
from benchmarks.long_steps import STEPS, Taken
from benchmarks.measuring import Result
from tests.postgres import PostgresServer
from turnledger.ledger import Ledger, export_runs, new_run_id

# What `make bench` writes: then only what `BRIEFLY` names is done with it.
EVENTS = 50_000
# The shorter run is this many times shorter.
TIMES_SHORTER = 10
# Less than this is as good as nothing: pages of a cache, an interpreter's own needs.
LEAST_MIB, LEAST_SECONDS = 8.0, 0.05
# More memory for ten times the events: none, but for what a process has anyway.
FLAT = 1.5
# More of it or more time for each event, where the run or its state is what it costs.
STEADY = 1.5
# What takes the same however long the run is: it looks at its end, or adds to it.
AT_ONCE = ("append", "read end", "log end")
# What reads all of a run, and holds a page of it.
PASSING = (
    "read",
    "tail",
    "verify",
    "verify all",
    "export",
    "import",
    "log",
    "log jsonl",
    "fork",
    "rebuild index",
    "summary end",
    "send",
    "messages",
    "cli state path",
)
BRIEFLY = (
    *AT_ONCE,
    "verify",
    "export",
    "import",
    "log",
    "messages",
    "state end",
    "state middle",
    "cli state",
    "timeline",
    "tools",
    "diff",
    "blame tool",
    "replay",
    "fork",
)
# Steps that add to the ledger, so that they come last.
ADDING = ("rebuild", "fork", "compare", "append")
ON_POSTGRES = ("append", "read", "verify", "export", "state end", "state middle")


class Written(NamedTuple):
    """A run in a ledger of its own."""

    url: str
    run: UUID
    events: int


def measure(folder: Path, events: int = EVENTS) -> Iterator[Result]:
    long = _written(str(folder / "long.db"), folder / "long.jsonl", events)
    short = _written(str(folder / "short.db"), folder / "short.jsonl", events // TIMES_SHORTER)
    wanted = STEPS if events > EVENTS else BRIEFLY
    for name in sorted(wanted, key=lambda name: name in ADDING):
        yield from _compared(folder, name, short, long)
    if events > EVENTS:
        yield from _on_postgres(folder, min(events, 100_000))


def _on_postgres(folder: Path, events: int) -> Iterator[Result]:
    with PostgresServer() as server:
        long = _written(server.url(), None, events)
        with PostgresServer() as other:
            short = _written(other.url(), None, events // TIMES_SHORTER)
            for name in ON_POSTGRES:
                yield from _compared(folder, name, short, long, "PostgreSQL, ")


def _written(url: str, export: Path | None, events: int) -> Written:
    run = new_run_id()
    with Ledger.open(url) as ledger:
        write(ledger, run, events)
        if export is not None:
            with export.open("wb") as file:
                export_runs(ledger, file, [run])
    return Written(url, run, events)


def _compared(
    folder: Path, name: str, short: Written, long: Written, where: str = ""
) -> Iterator[Result]:
    less, more = _taken(folder, name, short), _taken(folder, name, long)
    detail = f"{less.mib:.0f} -> {more.mib:.0f} MiB for {short.events:,} -> {long.events:,} events"
    growth = max(more.mib, LEAST_MIB) / max(less.mib, LEAST_MIB)
    flat = name in AT_ONCE or name in PASSING
    times = 1 if flat else long.events / short.events
    what = "memory" if flat else "memory an event"
    bar = FLAT if flat else STEADY
    yield Result(f"{where}{name}: {what}", growth / times, bar, at_least=False, detail=detail)
    growth = max(more.seconds, LEAST_SECONDS) / max(less.seconds, LEAST_SECONDS)
    times = 1 if name in AT_ONCE else long.events / short.events
    what = "processor time" if name in AT_ONCE else "processor time an event"
    yield Result(f"{where}{name}: {what}", growth / times, STEADY, at_least=False)


def _taken(folder: Path, name: str, written: Written) -> Taken:
    """What a step takes in a process of its own."""
    answer = folder / "taken.json"
    step = [sys.executable, "-m", "benchmarks.long_steps", name, written.url]
    subprocess.run([*step, str(written.run), str(written.events), str(answer)], check=True)
    return Taken(*json.loads(answer.read_bytes()))
