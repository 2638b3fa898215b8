"""Connections to a ledger's SQLite file, as durable as the ledger promises."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import quote

from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore

from ledger.errors import StoreBusyError, StoreUnavailableError

READERS = 8
DEFAULT_WAIT = 30.0


def unavailable(error: Exception, doing: str) -> StoreUnavailableError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return StoreBusyError(f"SQLite was busy while {doing} ({text}); nothing was written.")
    return StoreUnavailableError(f"SQLite failed while {doing}: {text}")


class LedgerConnectionPool(SQLiteConnectionPool):
    """Connections that are as durable as the ledger promises, and never checkpoint alone."""

    def __init__(self, *, wait: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def connect_bare(self) -> sqlite3.Connection:
        # By URI, so that no name is misread and nothing is created by accident.
        name = f"file:{quote(self.db_name)}?mode=rw"
        return sqlite3.connect(
            name,
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=256,
            timeout=self.wait,
        )

    def _create_connection(self) -> SQLiteConnection:
        raw = self.connect_bare()
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute("PRAGMA wal_autocheckpoint=0")
        raw.execute("PRAGMA foreign_keys=OFF")
        return SQLiteConnection(sqlite_conn=raw, max_age=self.max_age)


class LedgerDatastore(SQLiteDatastore):
    """The library's datastore with our connections."""

    def __init__(self, db_name: str, *, wait: float) -> None:
        super().__init__(db_name, originator_id_type="text")
        self.wait = wait
        self.pool: LedgerConnectionPool = LedgerConnectionPool(
            db_name=db_name, wait=wait, pool_size=READERS, pool_timeout=wait
        )

    def look(self) -> sqlite3.Connection:
        """A connection that has set nothing, to see what the file is."""
        return self.pool.connect_bare()

    def connect(self) -> sqlite3.Connection:
        """A connection outside the pool, for the writer."""
        connection: sqlite3.Connection = self.pool._create_connection()._sqlite_conn
        return connection
