"""Connections to a ledger's SQLite file, as durable as the ledger promises.

The library's own pool is not used: it closes connections in which other threads are reading,
which ends the interpreter, and loses a place for good when an interrupt comes at a bad moment.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn
from urllib.parse import quote

from eventsourcing.sqlite import SQLiteDatastore

from turnledger.ledger.stores.sqlite.connection_sqlite_forking import (
    OwnConnection,
    check_not_shared,
)
from turnledger.ledger.stores.sqlite.connection_sqlite_reading import reading
from turnledger.ledger.stores.sqlite.errors import code_of

# How many connections are kept for the next reader.
READERS = 8
DEFAULT_WAIT = 30.0
NAP = 0.001


class LedgerDatastore(SQLiteDatastore):
    """The library's datastore with our connections."""

    def __init__(self, db_name: str, *, wait: float, read_only: bool = False) -> None:
        super().__init__(db_name, originator_id_type="text")
        self.path = db_name
        self.wait = wait
        self.read_only = read_only
        self._idle: deque[sqlite3.Connection] = deque()
        self._is_closed = False

    def connect_bare(self, options: str = "mode=rw") -> sqlite3.Connection:
        """A connection that has set nothing, to see what the file is."""
        check_not_shared(self.path)
        # By URI, so that no name is misread and nothing is created by accident.
        return OwnConnection(
            self.path,
            f"file:{quote(os.fsencode(self.path))}?{options}",
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=256,
            timeout=self.wait,
        )

    def connect(self) -> sqlite3.Connection:
        """A connection that is as durable as the ledger promises, and never checkpoints alone."""
        db = self.connect_bare()
        try:
            self._switch_to_wal(db)
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute("PRAGMA foreign_keys=OFF")
            # What somebody put into the file is data: nothing in it may run functions.
            db.execute("PRAGMA trusted_schema=OFF")
        except BaseException:
            db.close()
            raise
        return db

    def _switch_to_wal(self, db: sqlite3.Connection) -> None:
        """SQLite waits for nobody here: not for one who rolls back what a killed process left."""
        deadline = time.monotonic() + self.wait
        while True:
            try:
                # To the last row: the switch is committed only then, and may fail.
                ((mode,),) = db.execute("PRAGMA journal_mode=WAL").fetchall()
                break
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(NAP)
        if mode != "wal":
            raise sqlite3.OperationalError(f"the journal mode stays {mode!r} instead of WAL")

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for one read; only the thread that reads with it ever closes it."""
        try:
            db = self._idle.pop()
        except IndexError:
            db = self.connect()
        try:
            yield db
        except BaseException:
            db.close()  # with whatever it was in the middle of
            raise
        if len(self._idle) < READERS:
            self._idle.append(db)
        else:
            db.close()
        if self._is_closed:
            self.rest()

    def read_only_connection(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection for one read, where nothing at all can be written."""
        return reading(self.path, lambda options: self.connect_bare(options))

    def get_connection(self, *, commit: bool) -> NoReturn:
        """Not offered: the library's connections would move the WAL whenever they like."""
        raise TypeError(
            "Read a ledger's file through the ledger, or with a connection of your own."
        )

    def rest(self) -> None:
        """Close the connections that nobody is using."""
        while True:
            try:
                db = self._idle.pop()
            except IndexError:
                return
            db.close()

    def close(self) -> None:
        """Readers that are under way close what they have when they are done."""
        self._is_closed = True
        self.rest()
        super().close()

    def __del__(self) -> None:
        # Connections close themselves; the library's pool never had one.
        pass
