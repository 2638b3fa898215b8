"""The connections of one open ledger: one that writes, a few that read, a sign of life.

All of them are made when they are first needed, and made again after they were lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore
from typing import Any
from uuid import uuid4

import psycopg
from eventsourcing.postgres import PostgresDatastore
from psycopg import Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from ledger.errors import LedgerClosedError, StoreBusyError, StoreUnavailableError
from ledger.stores.postgres_connection import (
    Address,
    Db,
    LostConnectionError,
    Session,
    Timelines,
    close_quietly,
    lay_to_rest,
    open_session,
    reach,
    unavailable,
)
from ledger.stores.postgres_schema import RESTORED, SETTLED
from ledger.transaction import Mark

READERS = 8
# A commit that waits, like every other, until a synchronous standby has all before it.
CONFIRM = """SELECT pg_logical_emit_message(true, 'turnledger', '')
    WHERE current_setting('synchronous_standby_names') <> ''"""

# How far nobody can add anything any more, and whether somebody else should have that too.
LOOK = f"""SELECT coalesce(max(position), 0),
    current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()
    FROM events WHERE position < {SETTLED}"""


class Writer:
    """The one connection that writes, made again when it was lost."""

    def __init__(self, address: Address, wait: float, timelines: Timelines) -> None:
        self._address = address
        self._wait = wait
        self._timelines = timelines
        self._session: Session | None = None
        self._cursor: Cursor[tuple[Any, ...]] | None = None
        self.generation = 0

    def db(self) -> Db:
        """A working connection, as far as can be known; the one before has ended."""
        session = self._session
        if session is not None and not session.db.closed:
            return session.db
        if session is None:
            new = self._timelines.admit(open_session(self._address, self._wait), self._address)
        else:
            deadline = time.monotonic() + self._wait
            new = self._timelines.admit(reach(self._address, self._wait), self._address)
            try:
                lay_to_rest(session, new.db, deadline - time.monotonic())
            except BaseException:
                new.db.close()
                raise
        self._session, self._cursor = new, None
        self.generation += 1
        return new.db

    def cursor(self) -> Cursor[tuple[Any, ...]]:
        """The one cursor for appending; none while positions would go backwards."""
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
        return self._cursor

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

    def shows(self, shelf: str, mark: Mark, xid: str) -> bool:
        """Whether a shelf's mark is the one that a lost transaction wrote.

        Its number alone would not tell: a server that crashed, or took over, may give the
        number of a transaction that left no trace to another one.
        """
        db = self.db()
        try:
            found = db.execute(
                "SELECT 1 FROM shelves WHERE name = %s AND fingerprint = %s AND generation = %s "
                "AND position = %s AND state = %s AND xmin::text = %s",
                (shelf, *mark, xid),
            ).fetchone()
        except psycopg.Error as error:
            raise unavailable(error, "looking for what was committed", db) from error
        return found is not None

    def confirm(self) -> None:
        """Have a synchronous standby confirm what is committed here; nothing without one.

        What is visible need not be on the standby: a server that crashed shows it at once.
        """
        db = self.db()
        db.unconfirmed = False
        try:
            db.execute(CONFIRM)
        except psycopg.Error as error:
            raise unavailable(error, "waiting for a standby", db) from error
        if db.unconfirmed:
            raise StoreUnavailableError("the wait for a standby was cancelled")

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

    def connections(self) -> list[Db]:
        return [self._session.db] if self._session is not None else []


class LifeSign:
    """An advisory lock that lasts as long as its connection: others see when it is gone.

    The key stays the same when the connection has to be made again.
    """

    def __init__(self, address: Address, wait: float, timelines: Timelines) -> None:
        self._address = address
        self._wait = wait
        self._timelines = timelines
        self._key = uuid4().int >> 65
        self._session: Session | None = None

    @property
    def name(self) -> str:
        return f"lock-{self._key}"

    def renew(self) -> None:
        """Give the sign, again if the connection that gave it was lost."""
        ghost = self._session
        if ghost is not None:
            with suppress(psycopg.Error):
                ghost.db.execute("SELECT 1")
                return
            ghost.db.close()
            session = reach(self._address, self._wait)
        else:
            session = open_session(self._address, self._wait)
        self._timelines.admit(session, self._address)
        try:
            if ghost is not None:
                lay_to_rest(ghost, session.db, self._wait)
            session.db.execute("SET tcp_keepalives_idle = 30")
            session.db.execute("SET tcp_keepalives_interval = 10")
            if session.db.info.server_version >= 140000:
                session.db.execute("SET idle_session_timeout = 0")
            session.db.execute("SELECT pg_advisory_lock(%s)", (self._key,))
        except psycopg.Error as error:
            session.db.close()
            raise unavailable(error, "giving a sign of life") from error
        except BaseException:
            session.db.close()
            raise
        self._session = session

    def close(self) -> None:
        if self._session is None:
            return
        # The server takes its time to notice that a connection is gone: say it.
        with suppress(psycopg.Error):
            self._session.db.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
        close_quietly(self._session.db)

    def connections(self) -> list[Db]:
        return [self._session.db] if self._session is not None else []


def key_of(holder: str) -> int | None:
    """The advisory lock that a life sign's name means; None if it is no such name."""
    number = holder.removeprefix("lock-")
    return int(number) if number != holder and number.isdecimal() else None


class LedgerPostgresDatastore(PostgresDatastore):
    """The library's datastore, with connections that find back by themselves."""

    def __init__(self, address: Address, *, wait: float) -> None:
        # The library's own pool is never opened: it would need threads of its own.
        super().__init__("", "", "", "", "", schema=address.schema, originator_id_type="text")
        self.address = address
        self.wait = wait
        self._timelines = Timelines()
        self.writer = Writer(address, wait, self._timelines)
        self.life = LifeSign(address, wait, self._timelines)
        self._places = BoundedSemaphore(READERS)
        self._idle: list[Session] = []
        self._closed = False
        # Up to this position, no standby that takes over is without an event.
        self._confirmed = -1

    def register_type_adapters(self) -> None:
        """A ledger uses no composite types."""

    @contextmanager
    def get_connection(self) -> Iterator[Any]:
        """A reader's connection, for the length of a block."""
        if not self._places.acquire(timeout=self.wait):
            raise StoreBusyError(f"All {READERS} reading connections were in use for too long.")
        try:
            session = self._take()
            try:
                yield session.db
            except BaseException:
                # Whatever state it is in, nobody else gets to see it.
                if session.db.info.transaction_status != TransactionStatus.IDLE:
                    close_quietly(session.db)
                raise
            finally:
                self._put_back(session)
        finally:
            self._places.release()

    def _take(self) -> Session:
        while self._idle:
            with suppress(IndexError):
                session = self._idle.pop()
                if not session.db.closed:
                    return session
        if self._closed:
            raise LedgerClosedError("This ledger was closed. Open it again.")
        return self._timelines.admit(reach(self.address, self.wait), self.address)

    def _put_back(self, session: Session) -> None:
        if not session.db.closed:
            self._idle.append(session)
        if self._closed:
            self._drop_idle()

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query; asked again if the connection turns out to be gone."""
        try:
            return self._read(statement, values, tuple_row)
        except LostConnectionError:
            self._drop_idle()
            return self._read(statement, values, tuple_row)

    def read_confirmed(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Events, their positions first, in order: once a synchronous standby has them too.

        What is visible need not be on the standby, and is gone if that one takes over: a wait
        for it that is cancelled, or a server that dies, shows such events for a moment.
        """
        try:
            return self._read_confirmed(statement, values)
        except LostConnectionError:
            self._drop_idle()
            return self._read_confirmed(statement, values)

    def _read_confirmed(self, statement: str, values: Sequence[Any]) -> list[Any]:
        # On one connection: another may lead to another server.
        with self.get_connection() as db:
            try:
                cursor = db.cursor(row_factory=tuple_row, binary=True)
                found: list[Any] = cursor.execute(statement, values, prepare=True).fetchall()
                if not found or found[-1][0] <= self._confirmed:
                    return found
                settled, has_standby = cursor.execute(LOOK, prepare=True).fetchone()
                if has_standby and not db.confirmed(CONFIRM, self.wait):
                    raise StoreUnavailableError(
                        "The synchronous standby did not confirm the last events, so a fail-over "
                        "could still take them back: a follower is not shown them yet. Go on "
                        "after the last position once the standby is back. "
                        "`tail` without `follow` shows all that the primary has."
                    )
            except psycopg.Error as error:
                raise unavailable(error, "reading", db) from error
            self._confirmed = max(self._confirmed, settled)
            return found

    def read_named(self, statement: str) -> list[dict[str, Any]]:
        """The same, with the names of the columns."""
        try:
            return self._read(statement, (), dict_row)
        except LostConnectionError:
            self._drop_idle()
            return self._read(statement, (), dict_row)

    def _read(self, statement: str, values: Sequence[Any], form: Any) -> list[Any]:
        with self.get_connection() as db:
            try:
                cursor = db.cursor(row_factory=form, binary=True)
                found: list[Any] = cursor.execute(statement, values, prepare=True).fetchall()
            except psycopg.Error as error:
                raise unavailable(error, "reading", db) from error
            return found

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                close_quietly(self._idle.pop().db)

    def close(self) -> None:
        if getattr(self, "_closed", True):
            return
        self._closed = True
        self._drop_idle()
        self.writer.close()
        self.life.close()

    def abandon(self) -> None:
        """In a forked child: every connection is the parent's, not even to be closed."""
        self._closed = True
        idle, self._idle = self._idle, []
        _THE_PARENTS.extend(session.db for session in idle)
        _THE_PARENTS.extend([*self.writer.connections(), *self.life.connections()])


# Kept, so that nothing is ever sent on a socket that belongs to another process.
_THE_PARENTS: list[Db] = []
