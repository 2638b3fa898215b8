"""Derived data: rows by name and key that are stored beside the events and can be rebuilt.

A name has at most one watermark, the position up to which its rows were made. Derived data is not
covered by the hash chain and not exported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import InvalidInputError, StoreBusyError, short_repr
from turnledger.ledger.runs.transaction import Transaction, Watermark

PAGE = 500
_READ_ATTEMPTS = 100
# Limits of a PostgreSQL index entry, which the other stores keep too.
NAME_BYTES = 200
KEY_BYTES = 2000
_POSITIONS = range(2**63 - 1)

__all__ = ["DerivedData", "DerivedReader", "Watermark"]


class DerivedReader(ABC):
    """Derived data as a store reads it."""

    @abstractmethod
    def watermarks(self) -> dict[str, Watermark]:
        """All watermarks by name."""

    @abstractmethod
    def watermark(self, name: str) -> Watermark | None: ...

    @abstractmethod
    def get(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        """The rows with these keys, of which there is a page at most."""

    @abstractmethod
    def page(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        """Rows with key > after, in the order of the keys' code points."""

    @abstractmethod
    def last(self, name: str, after: str, until: str, limit: int) -> list[tuple[str, str]]:
        """The last rows with after < key <= until, from the highest key down."""


@check_methods()
class DerivedData:
    """The derived data of one name. `Ledger.derived_data(name)` gives it; it may be empty."""

    def __init__(
        self,
        reader: DerivedReader,
        write: Callable[[Callable[[Transaction], Any]], Any],
        name: str,
    ) -> None:
        _check_key("the name of derived data", name, NAME_BYTES)
        self._reader = reader
        self._write = write
        self.name = name

    def watermark(self) -> Watermark | None:
        """Up to where the rows were made; None if there is no watermark."""
        return self._reader.watermark(self.name)

    def get(self, keys: Sequence[str]) -> dict[str, str]:
        """The rows that have these keys."""
        keys = [key for key in keys if is_storable(key)]
        found: dict[str, str] = {}
        for start in range(0, len(keys), PAGE):
            found.update(self._reader.get(self.name, keys[start : start + PAGE]))
        return found

    def last(self, after: str, until: str, limit: int) -> dict[str, str]:
        """The last rows of a range of keys; many are read faster so than one by one.

        Args:
            after: Rows with a higher key than this.
            until: Rows with this key, or a lower one.
            limit: How many rows at most.
        """
        if not (is_storable(after) and is_storable(until)):
            return {}
        return dict(self._reader.last(self.name, after, until, limit))

    def items(self) -> Iterator[tuple[str, str]]:
        """All rows by key, in pages: what changes meanwhile may be seen or not."""
        after = ""
        while page := self._reader.page(self.name, after, PAGE):
            yield from page
            after = page[-1][0]

    def snapshot(self) -> tuple[Watermark | None, dict[str, str]]:
        """The watermark and all rows that belong to it, as they were at one moment."""
        for _ in range(_READ_ATTEMPTS):
            watermark = self.watermark()
            rows = dict(self.items())
            if self.watermark() == watermark:
                return watermark, rows
        raise StoreBusyError(f"The derived data {self.name!r} changes faster than it can be read.")

    def put(self, rows: Mapping[str, str | None]) -> None:
        """Write rows (None removes one), all or none, durable when this returns."""
        _check_rows(rows)
        self._write(lambda tx: tx.derived.put(self.name, rows))

    def advance(
        self,
        expected: Watermark | None,
        watermark: Watermark,
        rows: Mapping[str, str | None],
        *,
        replace: bool = False,
    ) -> bool:
        """Write rows and move the watermark, if it still is the expected one; all or nothing.

        Args:
            expected: The watermark that must be stored, or None if there must be none.
            watermark: The one that is stored then.
            rows: Rows to write; None removes one.
            replace: Remove all other rows in the same transaction.

        Returns:
            False, with nothing written, if another writer has moved the watermark.
        """
        _check_rows(rows)
        _check_text("a watermark's fingerprint", watermark.fingerprint)
        _check_text("a watermark's state", watermark.state)
        if not isinstance(watermark.position, int) or watermark.position not in _POSITIONS:
            raise InvalidInputError(
                f"Invalid position {watermark.position!r}: expected a whole number of 63 bits."
            )

        def work(tx: Transaction) -> bool:
            if tx.derived.watermark(self.name) != expected:
                return False
            tx.derived.set_watermark(self.name, watermark)
            if replace:
                tx.derived.clear(self.name)
            tx.derived.put(self.name, rows)
            return True

        return bool(self._write(work))

    def drop(self) -> None:
        """Remove all rows, and the watermark."""

        def work(tx: Transaction) -> None:
            tx.derived.watermark(self.name)  # for its lock
            tx.derived.set_watermark(self.name, None)
            tx.derived.clear(self.name)

        self._write(work)


def is_storable(text: str) -> bool:
    """Whether every store can hold this text: PostgreSQL takes no NUL."""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_rows(rows: Mapping[str, str | None]) -> None:
    for key, text in rows.items():
        _check_key("a key of derived data", key, KEY_BYTES)
        if text is not None:
            _check_text("a row of derived data", text)


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str) or not is_storable(text):
        raise InvalidInputError(
            f"Invalid text for {what}: got {short_repr(text)}, expected text without NUL and "
            "without lone surrogates."
        )


def _check_key(what: str, text: str, limit: int) -> None:
    _check_text(what, text)
    if not 0 < (size := len(text.encode())) <= limit:
        raise InvalidInputError(
            f"Invalid length of {what}: got {size} bytes ({text[:100]!r}), expected 1 to {limit}."
        )
