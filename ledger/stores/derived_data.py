"""Shelves: derived data that is kept beside the events and can be thrown away at any time.

A shelf holds rows of text by key, in one generation that is shown and perhaps one that is
being made, and a mark that says what the shown one is and up to which position it was made.
Rows and mark change in one transaction or not at all. Nothing here is a fact: no digest
chain covers it, no export holds it, and whoever reads it must be able to make it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from turnledger.ledger.errors import InvalidInputError, StoreBusyError
from turnledger.ledger.runs.transaction import Mark, Transaction
from turnledger.ledger.stores.base import LedgerRecorder

PAGE = 500
_LOOKS = 100
# What PostgreSQL can hold in an index, and every other store then takes no more either.
NAME_BYTES = 200
KEY_BYTES = 2000
_NUMBERS = range(2**63 - 1)
NO_MARK = Mark("", 0, 0, "")

__all__ = ["NO_MARK", "Mark", "Shelf"]


class Shelf:
    """One named shelf of a ledger. `Ledger.shelf(name)` gives it; there need be nothing on it."""

    def __init__(self, store: LedgerRecorder, name: str) -> None:
        _check_name("A shelf's name", name, NAME_BYTES)
        self._store = store
        self.name = name

    def mark(self) -> Mark:
        """What the shown generation is; `NO_MARK` if there is none."""
        return self._store.shelf_mark(self.name) or NO_MARK

    def get(self, keys: Sequence[str], generation: int) -> dict[str, str]:
        """The rows of a generation that have these keys."""
        _check_number("generation", generation)
        keys = [key for key in keys if is_storable(key)]
        found: dict[str, str] = {}
        for start in range(0, len(keys), PAGE):
            chunk = keys[start : start + PAGE]
            found.update(self._store.shelf_get(self.name, generation, chunk))
        return found

    def items(self, generation: int) -> Iterator[tuple[str, str]]:
        """All rows of a generation by key, in pages."""
        _check_number("generation", generation)
        after = ""
        while page := self._store.shelf_page(self.name, generation, after, PAGE):
            yield from page
            after = page[-1][0]

    def shown(self) -> tuple[Mark, dict[str, str]]:
        """The mark and all rows that belong to it, as they were at one moment."""
        for _ in range(_LOOKS):
            mark = self.mark()
            rows = dict(self.items(mark.generation))
            if self.mark() == mark:
                return mark, rows
        raise StoreBusyError(f"The shelf {self.name!r} changes faster than it can be read.")

    def put(
        self,
        rows: Mapping[str, str | None],
        generation: int,
        *,
        expected: Mark | None = None,
        mark: Mark | None = None,
    ) -> bool:
        """Write rows (None removes one), durable when this returns; all or nothing.

        With `expected` only if the mark is still that one; False if it is not. With `mark`
        the mark becomes that one, and generations other than its own are removed if its
        generation is another than before.
        """
        _check_number("generation", generation)
        for key, text in rows.items():
            _check_name("A key on a shelf", key, KEY_BYTES)
            if text is not None:
                _check_text("A text on a shelf", text)
        if mark is not None:
            _check_mark(mark)
        return self._store.write(lambda tx: _put(tx, self.name, rows, generation, expected, mark))

    def clear(self, generation: int) -> None:
        """Remove a generation that is not shown."""
        _check_number("generation", generation)
        self._store.write(lambda tx: tx.drop_rows(self.name, only=generation))

    def drop(self) -> None:
        """Remove everything on this shelf, and its mark."""
        self._store.write(lambda tx: _drop(tx, self.name))


def _put(
    tx: Transaction,
    name: str,
    rows: Mapping[str, str | None],
    generation: int,
    expected: Mark | None,
    mark: Mark | None,
) -> bool:
    if expected is not None or mark is not None:
        found = tx.locked_mark(name) or NO_MARK
        if expected is not None and found != expected:
            return False
        if mark is not None:
            tx.put_mark(name, mark)
            if mark.generation != found.generation:
                tx.drop_rows(name, all_but=mark.generation)
    tx.put_rows(name, generation, rows)
    return True


def _drop(tx: Transaction, name: str) -> None:
    tx.locked_mark(name)
    tx.put_mark(name, None)
    tx.drop_rows(name)


def is_storable(text: str) -> bool:
    """Whether every store could hold this text: PostgreSQL takes no NUL."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str) or not is_storable(text):
        raise InvalidInputError(
            f"{what} is text without NUL and without lone surrogates: {str(text)[:100]!r} is not."
        )


def _check_name(what: str, text: str, limit: int) -> None:
    _check_text(what, text)
    if not 0 < len(text.encode()) <= limit:
        raise InvalidInputError(f"{what} has 1 to {limit} bytes: {text[:100]!r} does not.")


def _check_number(what: str, number: int) -> None:
    if not isinstance(number, int) or number not in _NUMBERS:
        raise InvalidInputError(f"A shelf's {what} is a whole number from 0: {number!r} is not.")


def _check_mark(mark: Mark) -> None:
    _check_text("A mark's fingerprint", mark.fingerprint)
    _check_text("A mark's state", mark.state)
    _check_number("generation", mark.generation)
    _check_number("position", mark.position)
