"""What events weigh on disk, against a bare (run, version, data) table."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import Result
from benchmarks.workload import events
from turnledger.ledger import ANY, Ledger, new_run_id


def measure(folder: Path) -> Iterator[Result]:
    sizes = {count: _ledger_bytes(folder / f"disk-{count}.db", count) for count in (1000, 50_000)}
    bare = _bare_bytes(folder, 50_000)
    yield Result(
        "bytes per event, against a bare table",
        sizes[50_000] / bare,
        1.5,
        at_least=False,
        detail=f"{sizes[50_000] / 50_000:.0f} against {bare / 50_000:.0f} bytes",
    )
    yield Result(
        "growth exponent, 1,000 to 50,000 events",
        math.log(sizes[50_000] / sizes[1000]) / math.log(50),
        1.02,
        at_least=False,
    )


def _ledger_bytes(path: Path, count: int) -> int:
    with Ledger.open(path) as ledger:
        run = new_run_id()
        batch = list(events(500))
        for _ in range(count // 500):
            ledger.append(run, batch, ANY)
    return path.stat().st_size


def _bare_bytes(folder: Path, count: int) -> int:
    """A table with the same data under the same key, and nothing else."""
    path = folder / "bare.db"
    source = sqlite3.connect(folder / f"disk-{count}.db")
    bare = sqlite3.connect(path)
    bare.execute(
        "CREATE TABLE bare (run TEXT, version INTEGER, data TEXT, PRIMARY KEY (run, version))"
    )
    bare.executemany(
        "INSERT INTO bare VALUES (?,?,?)",
        source.execute("SELECT run_id, version, data FROM events"),
    )
    bare.commit()
    bare.close()
    source.close()
    return path.stat().st_size
