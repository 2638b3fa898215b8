"""The physical limit: bare `sqlite3`, the same rows, indexes and index row, nothing else."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import uuid_utils

from benchmarks.workload import WHEN, events
from turnledger.ledger import Codec
from turnledger.ledger.clock import to_micros
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


class RawWriter:
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

    def commit(self, rows: list[NewRow]) -> None:
        db, last = self.db, rows[-1]
        db.execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            db.execute(INSERT, last)
        else:
            db.executemany(INSERT, rows)
        db.execute(
            UPSERT, (last.run_id, last.version, last.digest, last.recorded_at, last.recorded_at)
        )
        db.execute("COMMIT")
