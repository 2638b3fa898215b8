"""Snapshot of a ledger in PostgreSQL: a store that reads it as it was at one moment.

It takes no lock and no transaction number, so nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from turnledger.ledger.stores.postgres.connection import Connection, close_quietly
from turnledger.ledger.stores.postgres.errors import unavailable
from turnledger.ledger.stores.postgres.pool import ConnectionPool
from turnledger.ledger.stores.postgres.store import PostgresStore


class SnapshotPool(ConnectionPool):
    """The connections of another ledger's address, with all reading done in one transaction."""

    # None until there is one: what never came to be is closed too.
    _db: Connection | None = None

    def __init__(self, of: ConnectionPool) -> None:
        super().__init__(of.address, wait=of.wait, timelines=of.timelines)
        self._db = db = of.connect().db
        try:
            # A large ledger takes its time, and a server may have limits on all of these.
            db.execute("SET idle_in_transaction_session_timeout = 0")
            db.execute("SET statement_timeout = 0")
            if db.info.server_version >= 170000:
                db.execute("SET transaction_timeout = 0")
            db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            db.execute("SELECT count(*) FROM meta")  # from here on it stands still
        except psycopg.Error as error:
            close_quietly(db)
            raise unavailable(error, "beginning a snapshot") from error

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query. Not asked again: another connection would see another ledger."""
        assert self._db is not None
        try:
            found: list[Any] = self._db.execute(statement, values, binary=True).fetchall()
        except psycopg.Error as error:
            raise unavailable(error, "reading a snapshot", self._db) from error
        return found

    def close(self) -> None:
        super().close()
        if self._db is not None:
            close_quietly(self._db)


class PostgresSnapshot(PostgresStore):
    """The store as it stands now, to be read; closing it ends the snapshot."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(SnapshotPool(store.pool))
