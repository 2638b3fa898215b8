"""Connection pool of one open ledger in PostgreSQL: one writer, a few readers, a liveness lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from select import POLLIN, poll
from threading import BoundedSemaphore
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from turnledger.ledger.errors import LedgerClosedError, StoreBusyError, StoreUnavailableError
from turnledger.ledger.runs.transaction import Watermark
from turnledger.ledger.stores.postgres.connection import (
    LONGEST_WAIT,
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
from turnledger.ledger.stores.postgres.errors import CrowdedError, LostConnectionError, unavailable
from turnledger.ledger.stores.postgres.schema import RESTORED, SETTLED

READERS = 8
_LOOKING = "looking for what was committed"
# Seconds that the backend of a lost connection has at least to end.
SHORTEST_END = 1.0
# A commit that waits, like every other, until a synchronous standby has all before it.
CONFIRM = """SELECT pg_logical_emit_message(true, 'turnledger', '')
    WHERE current_setting('synchronous_standby_names') <> ''"""
# Up to where no event can appear any more, and whether a standby has to confirm that.
_SETTLED_POSITION = f"""SELECT coalesce(max(position), 0),
    current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()
    FROM events WHERE position < {SETTLED}"""


class Writer:
    """The one connection of an open ledger that writes, made again when it was lost."""

    def __init__(self, address: Address, wait: float, timelines: Timelines) -> None:
        self._address = address
        self._wait = wait
        self._timelines = timelines
        self._session: Session | None = None
        self._cursor: Cursor[tuple[Any, ...]] | None = None
        # Counts connections: the store notices by it that there is a new one.
        self.generation = 0
        # Until when to try to reconnect (time.monotonic).
        self.deadline = 0.0
        # Since they were last reset: whether a lease was written, and whether the server was
        # found to take no writes.
        self.wrote_lease = False
        self.found_read_only = False

    def db(self) -> Connection:
        """A working connection, as far as can be known; the backend of the last one has ended."""
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
                end_backend(session, new.db, max(left, SHORTEST_END))
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
        """The connection and a cursor for appending.

        Raises:
            StoreUnavailableError: If positions would go backwards: a dump was restored.
        """
        db = self.db()
        if self._cursor is None:
            if self._one(db, "looking for the highest position", f"SELECT {RESTORED}") != (False,):
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
        statement = "SELECT position FROM events WHERE event_id = %s AND digest = %s"
        found = self._one(self.db(), _LOOKING, statement, event_id, digest)
        return found[0] if found is not None else None

    def shows(self, name: str, watermark: Watermark, xid: str) -> bool:
        """Whether the watermark of derived data is the one that a lost transaction wrote.

        Its number alone would not tell: a server that crashed, or took over, may give the
        number of a transaction that left no trace to another one.
        """
        statement = (
            "SELECT 1 FROM shelves WHERE name = %s AND fingerprint = %s "
            "AND position = %s AND state = %s AND xmin::text = %s"
        )
        return self._one(self.db(), _LOOKING, statement, name, *watermark, xid) is not None

    def confirm(self) -> None:
        """Wait until a synchronous standby has all that is committed here, if there is one.

        What is visible need not be on the standby: a server that crashed shows it after its
        restart, whether or not it was ever confirmed.
        """
        db = self.db()
        try:
            confirmed = db.confirmed(CONFIRM)
        except psycopg.Error as error:
            raise unavailable(error, "waiting for a standby", db) from error
        if not confirmed:
            raise StoreUnavailableError("the synchronous standby did not confirm it")

    def is_on_standby(self) -> bool:
        """Whether this is a standby, which lags behind: what is not found may exist."""
        is_standby = self._one(self.db(), _LOOKING, "SELECT pg_is_in_recovery()") != (False,)
        self.found_read_only = self.found_read_only or is_standby
        return is_standby

    def _one(
        self, db: Connection, doing: str, statement: str, *values: Any
    ) -> tuple[Any, ...] | None:
        try:
            return db.execute(statement, values).fetchone()
        except psycopg.Error as error:
            raise unavailable(error, doing, db) from error

    def is_at_work(self) -> bool:
        """Whether the server, which is silent, is still at work for this connection."""
        return self._session is not None and is_served(self._address, self._session, self._wait)

    def close_if_in_transaction(self) -> None:
        """Between groups: close a connection that an interrupt left in a transaction."""
        session = self._session
        if session is None or session.db.closed:
            return
        if session.db.info.transaction_status != TransactionStatus.IDLE:
            close_quietly(session.db)

    def close(self) -> None:
        if self._session is not None:
            close_quietly(self._session.db)


class LivenessLock:
    """An advisory lock that lasts as long as its connection: others see that this one is alive.

    Its name is the holder of leases. The key stays the same when the connection is made again.
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

    @property
    def is_given(self) -> bool:
        return self._session is not None

    def is_in_doubt(self) -> bool:
        """Whether its connection is closed, or the server has sent something unasked.

        A server that ends a session says so. The check costs no round trip, and misses a peer
        that vanished silently.
        """
        session = self._session
        if session is None or session.db.closed or self._timelines.is_outdated(session):
            return True
        said = poll()
        try:
            said.register(session.db.fileno(), POLLIN)
        except psycopg.Error:
            return True
        return bool(said.poll(0))

    def renew(self, within: float | None = None) -> None:
        """Take the lock, again if its connection was lost."""
        lost = self._session
        if lost is not None:
            if not self._timelines.is_outdated(lost):
                with suppress(psycopg.Error):
                    lost.db.execute("SELECT 1")
                    return
            close_quietly(lost.db)
        new = reconnect(self._address, self._wait, within)
        session = self._timelines.admit(new, self._address)
        try:
            if lost is not None:
                end_backend(lost, session.db, self._wait)
            session.db.execute("SET tcp_keepalives_idle = 30")
            session.db.execute("SET tcp_keepalives_interval = 10")
            if session.db.info.server_version >= 140000:
                session.db.execute("SET idle_session_timeout = 0")
            session.db.execute("SELECT pg_advisory_lock(%s)", (self._key,))
        except psycopg.Error as error:
            session.db.close()
            raise unavailable(error, "taking the liveness lock") from error
        except BaseException:
            session.db.close()
            raise
        self._session = session

    def disconnect(self) -> None:
        """Close the connection; the next renewal makes another."""
        if self._session is not None:
            close_quietly(self._session.db)

    def close(self) -> None:
        if self._session is None:
            return
        # Explicitly: the server takes its time to notice that a connection is gone.
        with suppress(psycopg.Error):
            self._session.db.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
        close_quietly(self._session.db)


def lock_key(holder: str) -> int | None:
    """The key of the advisory lock that a holder names; None for another kind of holder."""
    number = holder.removeprefix("lock-")
    return int(number) if number != holder and number.isdecimal() else None


class ConnectionPool:
    """The connections of one open ledger, which reconnect by themselves."""

    def __init__(
        self, address: Address, *, wait: float, timelines: Timelines | None = None
    ) -> None:
        self.address = address
        self.wait = wait = min(wait, LONGEST_WAIT)
        self.timelines = timelines or Timelines()
        self.writer = Writer(address, wait, self.timelines)
        self.liveness = LivenessLock(address, wait, self.timelines)
        self._places = BoundedSemaphore(READERS)
        self._idle: list[Session] = []
        self._closed = False
        # Up to this position, a standby that takes over has every event.
        self._confirmed = -1

    @contextmanager
    def reader(self, within: float | None = None) -> Iterator[Connection]:
        """A reader's connection, for the length of a block."""
        if not self._places.acquire(timeout=self.wait):
            raise StoreBusyError(f"All {READERS} reading connections were in use for too long.")
        try:
            session = self._take(within)
            try:
                yield session.db
            except BaseException:
                # In whatever state it is, no other reader may get it.
                if session.db.info.transaction_status != TransactionStatus.IDLE:
                    close_quietly(session.db)
                raise
            finally:
                self._put_back(session)
        finally:
            self._places.release()

    def _take(self, within: float | None) -> Session:
        while self._idle:
            with suppress(IndexError):
                session = self._idle.pop()
                if self.timelines.is_outdated(session):
                    close_quietly(session.db)
                if not session.db.closed:
                    return session
        if self._closed:
            raise LedgerClosedError("This ledger was closed. Open it again.")
        return self.connect(within)

    def connect(self, within: float | None = None) -> Session:
        """A new connection, to a server that no standby has replaced."""
        return self.timelines.admit(reconnect(self.address, self.wait, within), self.address)

    def _put_back(self, session: Session) -> None:
        if not session.db.closed:
            self._idle.append(session)
        if self._closed:
            self._drop_idle()

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query; asked again if the connection turns out to be gone."""
        return self._until_read(lambda left: self._read(statement, values, tuple_row, left))

    def read_confirmed(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Events, their positions first, in order: once a synchronous standby has them too.

        What is visible need not be on the standby, and is gone if that one takes over: a wait
        for it that is cancelled, or a server that dies, shows such events for a moment.
        """
        return self._until_read(lambda left: self._read_confirmed(statement, values, left))

    def _read_confirmed(
        self, statement: str, values: Sequence[Any], left: float | None
    ) -> list[Any]:
        # On one connection: another one may be to another server.
        with self.reader(left) as db:
            try:
                cursor = db.cursor(row_factory=tuple_row, binary=True)
                found: list[Any] = cursor.execute(statement, values, prepare=True).fetchall()
                if not found or found[-1][0] <= self._confirmed:
                    return found
                ((settled, has_standby),) = cursor.execute(
                    _SETTLED_POSITION, prepare=True
                ).fetchall()
                if has_standby and not db.confirmed(CONFIRM):
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
        return self._until_read(lambda left: self._read(statement, (), dict_row, left))

    def _until_read(self, read: Callable[[float | None], list[Any]]) -> list[Any]:
        """Read, with retries while connections get lost or a standby's replay is in the way."""
        deadline, again = time.monotonic() + self.wait, False
        while True:
            left = deadline - time.monotonic()
            try:
                return read(left if again else None)
            except LostConnectionError:
                self._drop_idle()
                if again and left < 0:
                    raise
            except CrowdedError as error:
                if left < 0:
                    raise StoreBusyError(str(error)) from error
            again = True

    def _read(
        self, statement: str, values: Sequence[Any], form: Any, left: float | None
    ) -> list[Any]:
        with self.reader(left) as db:
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

    def leave_standbys(self) -> None:
        """After the writer found a primary: close readers on standbys, which lag behind."""
        for session in list(self._idle):
            if session.timeline == 0:
                with suppress(ValueError):
                    self._idle.remove(session)
                    close_quietly(session.db)

    def disconnect(self) -> None:
        """Close all connections to a server that takes no writes: another may be primary now."""
        self._drop_idle()
        self.writer.close()
        self.liveness.disconnect()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._drop_idle()
        self.writer.close()
        self.liveness.close()

    def after_fork_in_child(self) -> None:
        """In a forked child: keep every connection unused and open, it is the parent's."""
        self._closed = True
        idle, self._idle = self._idle, []
        sessions = (*idle, self.writer._session, self.liveness._session)
        _of_parent.extend(session.db for session in sessions if session is not None)


# In a child: kept for ever, because closing one would send on the parent's socket.
_of_parent: list[Connection] = []
