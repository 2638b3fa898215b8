"""Derived data in SQLite, written."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from turnledger.ledger.errors import StoreUnavailableError
from turnledger.ledger.runs.transaction import DerivedWriter, Watermark
from turnledger.ledger.stores.sql import PLAIN, WATERMARK
from turnledger.ledger.stores.sqlite.errors import unwritten

# Keys come in no order, so a row changes a page of its own, however short it is.
_BYTES_PER_ROW = 4096


class SQLiteDerivedWriter(DerivedWriter):
    """Derived data, written on the writer's connection: its lock keeps other writers out.

    `wrote`, `bytes_written` and `failed` are for the transaction that it is part of.
    """

    bytes_written = 0
    failed = False

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def watermark(self, name: str) -> Watermark | None:
        try:
            found = self._db.execute(
                f"SELECT {WATERMARK} FROM shelves WHERE {PLAIN} AND name=?", (name,)
            ).fetchone()
        except sqlite3.Error as error:
            raise self._failure(error, "reading a watermark") from error
        return Watermark(*found) if found else None

    def set_watermark(self, name: str, watermark: Watermark | None) -> None:
        if watermark is None:
            self._write("DELETE FROM shelves WHERE name=?", [(name,)])
        else:
            self._write(
                f"INSERT OR REPLACE INTO shelves (name, generation, {WATERMARK}) "
                "VALUES (?,0,?,?,?)",
                [(name, *watermark)],
            )

    def put(self, name: str, rows: Mapping[str, str | None]) -> None:
        put = [(name, key, text) for key, text in rows.items() if text is not None]
        removed = [(name, key) for key, text in rows.items() if text is None]
        self._write(
            "INSERT OR REPLACE INTO shelf_rows (shelf, generation, key, value) VALUES (?,0,?,?)",
            put,
        )
        self._write(f"DELETE FROM shelf_rows WHERE shelf=? AND {PLAIN} AND key=?", removed)
        self.bytes_written += sum(len(text) for *_, text in put)

    def clear(self, name: str) -> None:
        # With the rows of every generation: an older version may have left some.
        self._write("DELETE FROM shelf_rows WHERE shelf=?", [(name,)])

    def _write(self, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
        if not values:
            return
        self.wrote = True
        try:
            changed = self._db.executemany(statement, values).rowcount
        except sqlite3.Error as error:
            raise self._failure(error, "writing derived data") from error
        self.bytes_written += changed * _BYTES_PER_ROW

    def _failure(self, error: sqlite3.Error, doing: str) -> StoreUnavailableError:
        self.failed = True
        return unwritten(error, doing)
