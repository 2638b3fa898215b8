"""What reading costs on SQLite, against SELECT of the same columns and msgspec."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.measuring import Result, speed
from benchmarks.workload import events
from turnledger.ledger import ANY, Ledger, new_run_id
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.stores.sql import ROW

COUNT = 100_000


def measure(folder: Path) -> Iterator[Result]:
    path = folder / "read.db"
    with Ledger.open(path) as ledger:
        run = new_run_id()
        batch = list(events(1000))
        for _ in range(COUNT // 1000):
            ledger.append(run, batch, ANY)
        raw = sqlite3.connect(path, isolation_level=None)
        decoders = {tag: msgspec.json.Decoder(kind) for tag, kind in EVENT_TYPES.items()}

        def ours() -> None:
            for record in ledger.read(run):
                record.event  # noqa: B018

        def theirs() -> None:
            for row in raw.execute(
                f"SELECT {ROW} FROM events WHERE run_id=? ORDER BY version", (str(run),)
            ):
                decoders[row[3]].decode(row[7])

        ratio = speed(ours, theirs, rounds=5)
        yield Result("read and decode 100,000 events", ratio, 0.85, at_least=True)
        tracemalloc.start()
        ours()
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        raw.close()
    yield Result("memory for that, MB", peak, 30, at_least=False)
