"""Shelves in PostgreSQL: the part of the transaction and of the store that keeps them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from psycopg import Cursor

from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.transaction import Mark, Transaction
from turnledger.ledger.stores.base import LedgerRecorder
from turnledger.ledger.stores.sql_shelf_rows import MARK, SHELF_NAMES, generations

# The space of advisory locks that stand for shelves.
_SHELVES = 0x544C5348  # "TLSH"
# What one statement carries at most, give or take a row: it is held in memory on both sides.
_ROWS_AT_ONCE = 1000
_CHARACTERS_AT_ONCE = 8 * 1024 * 1024

_DOING = "writing to a shelf"
_SELECT_MARK = f"SELECT {MARK} FROM shelves WHERE name = %s"
_PUT_MARK = f"""INSERT INTO shelves (name, {MARK}) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint,
        generation = excluded.generation, position = excluded.position, state = excluded.state
    RETURNING xmin::text"""
_PUT_ROWS = """INSERT INTO shelf_rows (shelf, generation, key, value)
    SELECT %s, %s::bigint, key, value FROM unnest(%s::text[], %s::text[]) AS new (key, value)
    ON CONFLICT (shelf, generation, key) DO UPDATE SET value = excluded.value"""


class PostgresShelfTransaction(Transaction):
    """Shelves, written; `_shelved` is the last mark that it set, and with which number.

    `_erased` means that it removed that one again: nothing then shows that it was committed.
    """

    __slots__ = ("_erased", "_shelved", "_wrote")

    def __init__(self, heads: dict[str, RunRow], *, careful: bool) -> None:
        super().__init__(heads, careful=careful)
        self._wrote = False
        self._erased = False
        self._shelved: tuple[str, Mark, str] | None = None

    @abstractmethod
    def _execute(
        self, doing: str, statement: str, values: Any = (), *, prepare: bool = True
    ) -> Cursor[tuple[Any, ...]]: ...

    def locked_mark(self, shelf: str) -> Mark | None:
        # Not a lock on the row: to wait for that one, a transaction takes a number, and
        # whoever follows the ledger would wait with it.
        place = int.from_bytes(blake2b(shelf.encode(), digest_size=4).digest(), signed=True)
        lock = "SELECT pg_advisory_xact_lock(%s, %s)"
        self._execute("waiting for a shelf", lock, (_SHELVES, place))
        # A statement of its own: it sees what was committed while the first one waited.
        found = self._execute("reading a shelf's mark", _SELECT_MARK, (shelf,)).fetchone()
        return Mark(*found) if found else None

    def put_mark(self, shelf: str, mark: Mark | None) -> None:
        self._wrote = True
        if mark is None:
            self._execute(_DOING, "DELETE FROM shelves WHERE name = %s", (shelf,))
            if self._shelved is not None and self._shelved[0] == shelf:
                self._shelved, self._erased = None, True
            return
        found = self._execute(_DOING, _PUT_MARK, (shelf, *mark)).fetchone()
        assert found is not None
        self._shelved, self._erased = (shelf, mark, found[0]), False

    def put_rows(self, shelf: str, generation: int, rows: Mapping[str, str | None]) -> None:
        for keys, texts in _portions(rows):
            self._wrote = True
            self._execute(_DOING, _PUT_ROWS, (shelf, generation, keys, texts))
        dropped = [key for key, text in rows.items() if text is None]
        if dropped:
            self._wrote = True
            self._execute(
                _DOING,
                "DELETE FROM shelf_rows WHERE shelf = %s AND generation = %s AND key = ANY(%s)",
                (shelf, generation, dropped),
            )

    def drop_rows(self, shelf: str, *, only: int | None = None, all_but: int | None = None) -> None:
        self._wrote = True
        for first, last in generations(only, all_but):
            self._execute(
                _DOING,
                "DELETE FROM shelf_rows WHERE shelf = %s AND generation BETWEEN %s AND %s",
                (shelf, first, last),
            )


def _portions(rows: Mapping[str, str | None]) -> Iterator[tuple[list[str], list[str]]]:
    """Keys and texts for one statement each.

    In one order everywhere, so that two who write the same rows don't wait for each other.
    """
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


class PostgresShelves(LedgerRecorder):
    """Shelves, read."""

    @abstractmethod
    def _all(self, statement: str, values: Any = ()) -> list[Any]: ...

    def shelf_mark(self, shelf: str) -> Mark | None:
        found = self._all(_SELECT_MARK, (shelf,))
        return Mark(*found[0]) if found else None

    def shelf_get(self, shelf: str, generation: int, keys: Sequence[str]) -> dict[str, str]:
        return dict(
            self._all(
                "SELECT key, value FROM shelf_rows "
                "WHERE shelf = %s AND generation = %s AND key = ANY(%s)",
                (shelf, generation, list(keys)),
            )
        )

    def shelf_page(
        self, shelf: str, generation: int, after: str, limit: int
    ) -> list[tuple[str, str]]:
        return self._all(
            "SELECT key, value FROM shelf_rows "
            "WHERE shelf = %s AND generation = %s AND key > %s ORDER BY key LIMIT %s",
            (shelf, generation, after, limit),
        )

    def shelf_names(self) -> list[str]:
        return sorted(name for (name,) in self._all(SHELF_NAMES))
