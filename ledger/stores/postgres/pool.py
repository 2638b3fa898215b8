"""The connections of one open ledger: one that writes, a few that read, a sign of life.

All of them are made when they are first needed, and made again after they were lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from turnledger.ledger.errors import LedgerClosedError, StoreBusyError, StoreUnavailableError
from turnledger.ledger.stores.postgres.connection import (
    LONGEST_WAIT,
    Address,
    Connection,
    Session,
    Timelines,
    close_quietly,
    reconnect,
)
from turnledger.ledger.stores.postgres.errors import CrowdedError, LostConnectionError, unavailable
from turnledger.ledger.stores.postgres.pool_postgres_life import LivenessLock
from turnledger.ledger.stores.postgres.pool_postgres_writer import CONFIRM, Writer
from turnledger.ledger.stores.postgres.sql_postgres_schema import SETTLED

READERS = 8
# How far nobody can add anything any more, and whether somebody else should have that too.
LOOK = f"""SELECT coalesce(max(position), 0),
    current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()
    FROM events WHERE position < {SETTLED}"""


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
        # Up to this position, no standby that takes over is without an event.
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
                # Whatever state it is in, nobody else gets to see it.
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
        """A new connection, to a server that was there before and is no stray since."""
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
        # On one connection: another may lead to another server.
        with self.reader(left) as db:
            try:
                cursor = db.cursor(row_factory=tuple_row, binary=True)
                found: list[Any] = cursor.execute(statement, values, prepare=True).fetchall()
                if not found or found[-1][0] <= self._confirmed:
                    return found
                ((settled, has_standby),) = cursor.execute(LOOK, prepare=True).fetchall()
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
        """Read, again as long as connections get lost, or a standby's replay is in the way."""
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
        """The writer has found a primary: who was led elsewhere meanwhile would read of old."""
        for session in list(self._idle):
            if session.timeline == 0:
                with suppress(ValueError):
                    self._idle.remove(session)
                    close_quietly(session.db)

    def disconnect(self) -> None:
        """Give up what leads to a server that takes no writes: another may be there by now."""
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
        """In a forked child: every connection is the parent's, not even to be closed."""
        self._closed = True
        idle, self._idle = self._idle, []
        _of_parent.extend(session.db for session in idle)
        _of_parent.extend([*self.writer.connections(), *self.liveness.connections()])


# Kept, so that nothing is ever sent on a socket that belongs to another process.
_of_parent: list[Connection] = []
