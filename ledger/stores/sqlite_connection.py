"""Connections to a ledger's SQLite file, as durable as the ledger promises."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote

from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore

from ledger.stores.sqlite_faults import code_of
from ledger.stores.sqlite_reading import reading

READERS = 8
DEFAULT_WAIT = 30.0
NAP = 0.001


class LedgerConnectionPool(SQLiteConnectionPool):
    """Connections that are as durable as the ledger promises, and never checkpoint alone."""

    def __init__(self, *, wait: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def connect_bare(self, options: str = "mode=rw") -> sqlite3.Connection:
        # By URI, so that no name is misread and nothing is created by accident.
        return sqlite3.connect(
            f"file:{quote(os.fsencode(self.db_name))}?{options}",
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=256,
            timeout=self.wait,
        )

    def _create_connection(self) -> SQLiteConnection:
        raw = self.connect_bare()
        try:
            self._switch_to_wal(raw)
            raw.execute("PRAGMA synchronous=FULL")
            raw.execute("PRAGMA wal_autocheckpoint=0")
            raw.execute("PRAGMA foreign_keys=OFF")
        except BaseException:
            raw.close()
            raise
        return SQLiteConnection(sqlite_conn=raw, max_age=self.max_age)

    def _switch_to_wal(self, raw: sqlite3.Connection) -> None:
        """SQLite waits for nobody here: not for one who rolls back what a killed process left."""
        deadline = time.monotonic() + self.wait
        while True:
            try:
                # To the last row: the switch is committed only then, and may fail.
                ((mode,),) = raw.execute("PRAGMA journal_mode=WAL").fetchall()
                break
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(NAP)
        if mode != "wal":
            raise sqlite3.OperationalError(f"the journal mode stays {mode!r} instead of WAL")


class LedgerDatastore(SQLiteDatastore):
    """The library's datastore with our connections."""

    def __init__(self, db_name: str, *, wait: float, read_only: bool = False) -> None:
        super().__init__(db_name, originator_id_type="text")
        self.wait = wait
        self.read_only = read_only
        self.pool: LedgerConnectionPool = LedgerConnectionPool(
            db_name=db_name, wait=wait, pool_size=READERS, pool_timeout=wait
        )

    def look(self) -> sqlite3.Connection:
        """A connection that has set nothing, to see what the file is."""
        return self.pool.connect_bare()

    def read_only_connection(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for one read, where nothing at all can be written."""
        return reading(self.pool.db_name, self.pool.connect_bare)

    def connect(self) -> sqlite3.Connection:
        """A connection outside the pool, for the writer."""
        connection: sqlite3.Connection = self.pool._create_connection()._sqlite_conn
        return connection
