"""The run index in PostgreSQL, made again from the events: the part of the transaction for it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import Cursor

from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record import Row, as_row
from turnledger.ledger.stores.base import PAGE
from turnledger.ledger.stores.postgres.connection import Connection
from turnledger.ledger.stores.postgres.errors import unavailable
from turnledger.ledger.stores.postgres.sql import REBUILT_RUN, run_values
from turnledger.ledger.stores.postgres.sql_postgres_schema import ROW
from turnledger.ledger.stores.postgres.transaction_postgres_leases import PostgresLeaseTransaction

_REBUILDING = "rebuilding the run index"


class PostgresIndexTransaction(PostgresLeaseTransaction):
    """The index, thrown away and written again; nobody else writes meanwhile."""

    __slots__ = ("_cursor", "_db")
    _cursor: Cursor[tuple[Any, ...]]
    _db: Connection

    @abstractmethod
    def _write_held(self) -> None:
        """Write what was held back until now, if anything."""

    def rebuild_index(self, fold: Callable[[Iterator[Row]], list[RunRow]]) -> None:
        self._write_held()
        self._execute(_REBUILDING, "LOCK TABLE runs IN EXCLUSIVE MODE", prepare=False)
        self._wrote = True
        rows = fold(self._all_rows())
        with self._db.without_limit(self._writer.is_at_work):
            self._write_index(rows)

    def _write_index(self, rows: Sequence[RunRow]) -> None:
        self._execute(_REBUILDING, "DELETE FROM run_tags")
        self._execute(_REBUILDING, "DELETE FROM runs")
        tags = [(k, v, row.run_id) for row in rows for k, v in row.tag_map.items()]
        try:
            self._cursor.executemany(
                REBUILT_RUN, [(*run_values(row), row.run_id, row.version) for row in rows]
            )
            self._cursor.executemany("INSERT INTO run_tags VALUES (%s, %s, %s)", tags)
        except psycopg.Error as error:
            raise unavailable(error, _REBUILDING, self._db, writing=True) from error

    def _all_rows(self) -> Iterator[Row]:
        last = -1
        while True:
            found = self._execute(
                "reading all events",
                f"SELECT {ROW} FROM events WHERE position > %s ORDER BY position LIMIT %s",
                (last, PAGE),
            ).fetchall()
            if not found:
                return
            page = list(map(as_row, found))
            yield from page
            last = page[-1].position
