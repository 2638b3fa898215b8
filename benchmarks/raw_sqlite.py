"""Baselines for appends: raw `sqlite3`, the same rows, indexes and index row.

`FairWriter` also does what no ledger of this kind can leave out: for each event an id, its JSON
and its place in the hash chain. `BareWriter` writes rows that were made beforehand: the disk and
SQLite alone.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uuid_utils

from benchmarks.workload import WHEN, events
from turnledger.ledger import Codec, Event
from turnledger.ledger.clock import to_micros
from turnledger.ledger.events.chain import GENESIS, linker
from turnledger.ledger.runs.record import NewRow
from turnledger.ledger.stores.sql import RUN
from turnledger.ledger.stores.sqlite.schema import TABLES

INSERT = (
    "INSERT INTO events (run_id, version, tag, event_id, recorded_at, digest, data) "
    "VALUES (?,?,?,?,?,?,?)"
)
UPSERT = (
    f"INSERT INTO runs ({RUN}) VALUES (?,?,?,?,0,'running',?,'','run',NULL,0,'{{}}') "
    "ON CONFLICT (run_id) DO UPDATE SET version=excluded.version, digest=excluded.digest, "
    "recorded_at=excluded.recorded_at"
)


def open_raw(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    for statement in TABLES:
        db.execute(statement)
    return db


def flush_seconds(folder: Path, times: int = 50) -> float:
    """What it takes to flush a page to this disk: the median."""
    found = []
    with (folder / "flushed").open("wb", buffering=0) as file:
        for _ in range(times):
            file.write(bytes(4096))
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - started)
    return sorted(found)[times // 2]


class BareWriter:
    """Writes rows that were made beforehand."""

    def __init__(self, path: Path) -> None:
        self.db = open_raw(path)
        self.run_id = str(uuid_utils.uuid7())
        self.version = 0

    def rows(self, count: int) -> list[NewRow]:
        codec, made = Codec(), []
        for event in events(count):
            self.version += 1
            tag, data = codec.encode(event)
            made.append(
                NewRow(
                    self.run_id,
                    self.version,
                    tag,
                    str(uuid_utils.uuid7()),
                    to_micros(WHEN) + self.version,
                    os.urandom(32),
                    data.decode(),
                )
            )
        return made

    def commit(self, rows: Sequence[tuple[str, int, str, str, int, bytes, str]]) -> None:
        db = self.db
        run_id, version, _, _, moment, digest, _ = rows[-1]
        db.execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            db.execute(INSERT, rows[0])
        else:
            db.executemany(INSERT, rows)
        db.execute(UPSERT, (run_id, version, digest, moment, moment))
        db.execute("COMMIT")


class FairWriter(BareWriter):
    """Makes the rows, too: a UUIDv7, JSON by msgspec, and the SHA-256 chain as a ledger has it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._digest = GENESIS
        self._encode = msgspec.json.Encoder().encode

    def append(self, batch: Sequence[Event]) -> None:
        run_id, encode, new_id = self.run_id, self._encode, uuid_utils.uuid7
        version, digest = self.version, self._digest
        moment = time.time_ns() // 1000
        link = linker(run_id, moment)
        rows = []
        for event in batch:
            version += 1
            event_id, tag, data = str(new_id()), event.tag, encode(event)
            digest = link(digest, version, event_id, tag, data)
            rows.append((run_id, version, tag, event_id, moment, digest, data.decode()))
        self.commit(rows)
        self.version, self._digest = version, digest
