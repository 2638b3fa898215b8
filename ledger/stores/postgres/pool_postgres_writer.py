"""The one connection of an open ledger that writes, and the way back to it when it was lost."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import Cursor
from psycopg.pq import TransactionStatus

from turnledger.ledger.errors import StoreUnavailableError
from turnledger.ledger.runs.transaction import Watermark
from turnledger.ledger.stores.postgres.connection import (
    Address,
    Connection,
    Session,
    Timelines,
    close_quietly,
    end_backend,
    is_served,
    open_session,
    reconnect,
)
from turnledger.ledger.stores.postgres.errors import unavailable
from turnledger.ledger.stores.postgres.sql_postgres_schema import RESTORED

# A commit that waits, like every other, until a synchronous standby has all before it.
CONFIRM = """SELECT pg_logical_emit_message(true, 'turnledger', '')
    WHERE current_setting('synchronous_standby_names') <> ''"""


# Seconds that a lost session has at least to end.
SHORTEST_REST = 1.0


class Writer:
    """The one connection that writes, made again when it was lost."""

    def __init__(self, address: Address, wait: float, timelines: Timelines) -> None:
        self._address = address
        self._wait = wait
        self._timelines = timelines
        self._session: Session | None = None
        self._cursor: Cursor[tuple[Any, ...]] | None = None
        self.generation = 0
        # Until when a lost connection may be looked for.
        self.deadline = 0.0
        # Since this was last reset: whether a lease was written, and whether it was found that
        # the server takes no writes.
        self.leased = False
        self.misled = False

    def db(self) -> Connection:
        """A working connection, as far as can be known; the one before has ended."""
        session = self._session
        if session is not None and self._timelines.is_outdated(session):
            close_quietly(session.db)
        if session is not None and not session.db.closed:
            return session.db
        if session is None:
            new = self._timelines.admit(open_session(self._address, self._wait), self._address)
        else:
            left = self.deadline - time.monotonic()
            new = self._timelines.admit(reconnect(self._address, self._wait, left), self._address)
            try:
                left = self.deadline - time.monotonic()
                end_backend(session, new.db, max(left, SHORTEST_REST))
            except BaseException:
                new.db.close()
                raise
        self._session, self._cursor = new, None
        self.generation += 1
        return new.db

    @property
    def is_connected(self) -> bool:
        return self._session is not None and not self._session.db.closed

    def cursor(self) -> tuple[Connection, Cursor[tuple[Any, ...]]]:
        """A connection and its cursor for appending; none while positions would go backwards."""
        db = self.db()
        if self._cursor is None:
            try:
                found = db.execute(f"SELECT {RESTORED}").fetchone()
            except psycopg.Error as error:
                raise unavailable(error, "looking for the highest position", db) from error
            if found != (False,):
                raise StoreUnavailableError(
                    f"{self._address} was restored from a dump, and this server's transaction "
                    "numbers are lower than those in it: appending would break the order. "
                    "Nothing was written. Run `turnledger rebase --db URL` once "
                    "(in Python: Ledger.open(url).rebase())."
                )
            self._cursor = db.cursor(binary=True)
        return db, self._cursor

    def find(self, event_id: str, digest: bytes) -> int | None:
        """The position of an event that a lost transaction wrote, if that was committed."""
        db = self.db()
        try:
            found = db.execute(
                "SELECT position FROM events WHERE event_id = %s AND digest = %s",
                (event_id, digest),
            ).fetchone()
        except psycopg.Error as error:
            raise unavailable(error, "looking for what was committed", db) from error
        return found[0] if found is not None else None

    def shows(self, name: str, watermark: Watermark, xid: str) -> bool:
        """Whether the watermark of derived data is the one that a lost transaction wrote.

        Its number alone would not tell: a server that crashed, or took over, may give the
        number of a transaction that left no trace to another one.
        """
        db = self.db()
        try:
            found = db.execute(
                "SELECT 1 FROM shelves WHERE name = %s AND fingerprint = %s "
                "AND position = %s AND state = %s AND xmin::text = %s",
                (name, *watermark, xid),
            ).fetchone()
        except psycopg.Error as error:
            raise unavailable(error, "looking for what was committed", db) from error
        return found is not None

    def confirm(self) -> None:
        """Have a synchronous standby confirm what is committed here; nothing without one.

        What is visible need not be on the standby: a server that crashed shows it at once.
        """
        db = self.db()
        try:
            confirmed = db.confirmed(CONFIRM)
        except psycopg.Error as error:
            raise unavailable(error, "waiting for a standby", db) from error
        if not confirmed:
            raise StoreUnavailableError("the synchronous standby did not confirm it")

    def is_on_standby(self) -> bool:
        """Whether what is not found here may be there all the same: a standby lags behind."""
        db = self.db()
        try:
            found = db.execute("SELECT pg_is_in_recovery()").fetchone()
        except psycopg.Error as error:
            raise unavailable(error, "looking for what was committed", db) from error
        self.misled = self.misled or found != (False,)
        return found != (False,)

    def is_at_work(self) -> bool:
        """Whether the server, which says nothing, is still there and busy for this connection."""
        return self._session is not None and is_served(self._address, self._session, self._wait)

    def tidy(self) -> None:
        """Between groups: a connection that is still in the middle of something is given up."""
        session = self._session
        if session is None or session.db.closed:
            return
        if session.db.info.transaction_status != TransactionStatus.IDLE:
            close_quietly(session.db)

    def close(self) -> None:
        if self._session is not None:
            close_quietly(self._session.db)

    def connections(self) -> list[Connection]:
        return [self._session.db] if self._session is not None else []
