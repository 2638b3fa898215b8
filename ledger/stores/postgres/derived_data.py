"""Derived data in PostgreSQL, written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from psycopg import Cursor

from turnledger.ledger.runs.transaction import DerivedWriter, Watermark
from turnledger.ledger.stores.sql import PLAIN, WATERMARK

# The space of advisory locks that stand for names of derived data.
_LOCKS = 0x544C5348  # "TLSH"
# Limits of one statement, give or take a row: it is held in memory on both sides.
_ROWS_AT_ONCE = 1000
_CHARACTERS_AT_ONCE = 8 * 1024 * 1024

_DOING = "writing derived data"
_SELECT_WATERMARK = f"SELECT {WATERMARK} FROM shelves WHERE {PLAIN} AND name = %s"
_SET_WATERMARK = f"""INSERT INTO shelves (name, generation, {WATERMARK}) VALUES (%s, 0, %s, %s, %s)
    ON CONFLICT (name) DO UPDATE SET generation = 0, fingerprint = excluded.fingerprint,
        position = excluded.position, state = excluded.state
    RETURNING xmin::text"""
_PUT_ROWS = """INSERT INTO shelf_rows (shelf, generation, key, value)
    SELECT %s, 0, key, value FROM unnest(%s::text[], %s::text[]) AS new (key, value)
    ON CONFLICT (shelf, generation, key) DO UPDATE SET value = excluded.value"""


class Execute(Protocol):
    """Runs a statement within the transaction; `doing` is for its errors."""

    def __call__(
        self, doing: str, statement: str, values: Any = ...
    ) -> Cursor[tuple[Any, ...]]: ...


class Trace(NamedTuple):
    """What shows whether a transaction was committed whose answer was lost.

    `written` is the last watermark that it set: name, watermark, transaction number. `erased`
    means that it removed that one again: nothing then shows that it was committed.
    """

    written: tuple[str, Watermark, str] | None = None
    erased: bool = False


class PostgresDerivedWriter(DerivedWriter):
    """Derived data, written through the transaction's `execute`."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self.trace = Trace()

    def watermark(self, name: str) -> Watermark | None:
        # Not a lock on the row: to wait for that one, a transaction takes a number, and
        # readers that follow the ledger would wait with it.
        place = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), signed=True)
        lock = "SELECT pg_advisory_xact_lock(%s, %s)"
        self._execute("waiting for derived data", lock, (_LOCKS, place))
        # A statement of its own: it sees what was committed while the first one waited.
        found = self._execute("reading a watermark", _SELECT_WATERMARK, (name,)).fetchone()
        return Watermark(*found) if found else None

    def set_watermark(self, name: str, watermark: Watermark | None) -> None:
        self.wrote = True
        if watermark is None:
            self._execute(_DOING, "DELETE FROM shelves WHERE name = %s", (name,))
            if self.trace.written is not None and self.trace.written[0] == name:
                self.trace = Trace(erased=True)
            return
        found = self._execute(_DOING, _SET_WATERMARK, (name, *watermark)).fetchone()
        assert found is not None
        self.trace = Trace((name, watermark, found[0]))

    def put(self, name: str, rows: Mapping[str, str | None]) -> None:
        for keys, texts in _portions(rows):
            self.wrote = True
            self._execute(_DOING, _PUT_ROWS, (name, keys, texts))
        removed = [key for key, text in rows.items() if text is None]
        if removed:
            self.wrote = True
            self._execute(
                _DOING,
                f"DELETE FROM shelf_rows WHERE shelf = %s AND {PLAIN} AND key = ANY(%s)",
                (name, removed),
            )

    def clear(self, name: str) -> None:
        # With the rows of every generation: an older version may have left some.
        self.wrote = True
        self._execute(_DOING, "DELETE FROM shelf_rows WHERE shelf = %s", (name,))


def _portions(rows: Mapping[str, str | None]) -> Iterator[tuple[list[str], list[str]]]:
    """Keys and texts for one statement each; sorted, so that two writers can't deadlock."""
    keys: list[str] = []
    texts: list[str] = []
    characters = 0
    for key in sorted(rows):
        text = rows[key]
        if text is None:
            continue
        keys.append(key)
        texts.append(text)
        characters += len(text)
        if len(keys) == _ROWS_AT_ONCE or characters > _CHARACTERS_AT_ONCE:
            yield keys, texts
            keys, texts, characters = [], [], 0
    if keys:
        yield keys, texts
