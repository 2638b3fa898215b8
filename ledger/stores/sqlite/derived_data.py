"""Shelves in SQLite: the part of the transaction and of the store that keeps them."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from turnledger.ledger.errors import StoreUnavailableError
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.transaction import Mark, Transaction
from turnledger.ledger.stores.base import LedgerRecorder
from turnledger.ledger.stores.sql_shelf_rows import MARK, SHELF_NAMES, generations
from turnledger.ledger.stores.sqlite.errors import unwritten

# Keys come in no order, so a row changes a page of its own, however short it is.
_BYTES_PER_ROW = 4096
_PUT_MARK = f"INSERT OR REPLACE INTO shelves (name, {MARK}) VALUES (?,?,?,?,?)"
_PUT_ROW = "INSERT OR REPLACE INTO shelf_rows (shelf, generation, key, value) VALUES (?,?,?,?)"
_DROP_ROW = "DELETE FROM shelf_rows WHERE shelf=? AND generation=? AND key=?"
_DROP_GENERATIONS = "DELETE FROM shelf_rows WHERE shelf=? AND generation BETWEEN ? AND ?"


class SQLiteShelfTransaction(Transaction):
    """Shelves, written on the writer's connection; its lock keeps all others out."""

    __slots__ = ("_db", "_wrote", "begun", "bytes_written", "failed")

    def __init__(self, db: sqlite3.Connection, heads: dict[str, RunRow], *, careful: bool) -> None:
        super().__init__(heads, careful=careful)
        self._db = db
        self._wrote = False
        self.bytes_written = 0
        # Whether SQLite's own lock was ours: what is at the end of the WAL is then ours, too.
        self.begun = False
        # The disk may be full: moving the WAL into the database can make room in it.
        self.failed = False

    def _failed(self, error: sqlite3.Error, doing: str) -> StoreUnavailableError:
        self.failed = True
        return unwritten(error, doing)

    def locked_mark(self, shelf: str) -> Mark | None:
        try:
            found = self._db.execute(
                f"SELECT {MARK} FROM shelves WHERE name=?", (shelf,)
            ).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error, "reading a shelf's mark") from error
        return Mark(*found) if found else None

    def put_mark(self, shelf: str, mark: Mark | None) -> None:
        if mark is None:
            self._write("DELETE FROM shelves WHERE name=?", [(shelf,)])
        else:
            self._write(_PUT_MARK, [(shelf, *mark)])

    def put_rows(self, shelf: str, generation: int, rows: Mapping[str, str | None]) -> None:
        put = [(shelf, generation, key, text) for key, text in rows.items() if text is not None]
        dropped = [(shelf, generation, key) for key, text in rows.items() if text is None]
        self._write(_PUT_ROW, put)
        self._write(_DROP_ROW, dropped)
        self.bytes_written += sum(len(text) for *_, text in put)

    def drop_rows(self, shelf: str, *, only: int | None = None, all_but: int | None = None) -> None:
        ranges = generations(only, all_but)
        self._write(_DROP_GENERATIONS, [(shelf, *bounds) for bounds in ranges])

    def _write(self, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
        if not values:
            return
        self._wrote = True
        try:
            changed = self._db.executemany(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._failed(error, "writing to a shelf") from error
        self.bytes_written += changed * _BYTES_PER_ROW


class SQLiteShelves(LedgerRecorder):
    """Shelves, read."""

    @abstractmethod
    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]: ...

    def shelf_mark(self, shelf: str) -> Mark | None:
        found = self._all(f"SELECT {MARK} FROM shelves WHERE name=?", (shelf,))
        return Mark(*found[0]) if found else None

    def shelf_get(self, shelf: str, generation: int, keys: Sequence[str]) -> dict[str, str]:
        slots = ",".join("?" * len(keys))
        return dict(
            self._all(
                "SELECT key, value FROM shelf_rows "
                f"WHERE shelf=? AND generation=? AND key IN ({slots})",
                (shelf, generation, *keys),
            )
        )

    def shelf_page(
        self, shelf: str, generation: int, after: str, limit: int
    ) -> list[tuple[str, str]]:
        return self._all(
            "SELECT key, value FROM shelf_rows "
            "WHERE shelf=? AND generation=? AND key>? ORDER BY key LIMIT ?",
            (shelf, generation, after, limit),
        )

    def shelf_names(self) -> list[str]:
        return sorted(name for (name,) in self._all(SHELF_NAMES))
