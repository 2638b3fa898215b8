"""Stored lists: the items of long lists as derived data, so that a thread is loaded fast.

The events have all of it, as what each checkpoint added. Every now and then the items since the
last time are also stored in a row, packed; a reader takes these rows and only the last events.
Rows that are missing cost time and nothing else.
"""

from __future__ import annotations

import json

from turnledger.adapters.frameworks.langgraph.known_values import KnownList, StoredItems
from turnledger.adapters.frameworks.langgraph.packed_values import HEAD, Address, array_length, pack
from turnledger.ledger import Ledger
from turnledger.ledger.stores.derived_data import KEY_BYTES

NAME = "langgraph.lists"
# How many items a row has at least, and how many rows before it a row names.
ITEMS = 16
ROWS = 31
# Of a version in a key: the rows of a list are in the order of their keys.
_DIGITS = 19


class StoredLists:
    """Stores lists of a ledger's threads, and finds them again."""

    def __init__(self, ledger: Ledger) -> None:
        self._data = ledger.derived_data(NAME)

    def is_due(self, found: KnownList) -> bool:
        """Whether enough was added to a list since it was stored."""
        return len(found.items) - found.stored >= ITEMS

    def store(self, run: str, found: KnownList) -> None:
        """Store what was added to a list, whose event this run has."""
        key = _key(run, found.address)
        row = _row(pack(found.items[found.stored :]), found.rows)
        if row is None or len(key.encode()) > KEY_BYTES:
            return
        self._data.put({key: row})
        found.rows = (*found.rows, key)[-ROWS:]
        found.stored = len(found.items)

    def find(self, run: str, address: Address) -> StoredItems | None:
        """The items of a list in an event of this run; None if a row is missing."""
        last = _key(run, address)
        wanted: tuple[str, ...] = (last,)
        # Nearly always all that is wanted.
        rows = self._data.last(last[:-_DIGITS], last, ROWS + 1)
        texts: list[str] = []
        known: tuple[str, ...] = ()
        while wanted:
            if more := [key for key in wanted if key not in rows]:
                rows |= self._data.get(more)
                if any(key not in rows for key in more):
                    return None
            texts[:0] = [rows[key] for key in wanted]
            before = _before(rows[wanted[0]])
            known = known or (*before, last)[-ROWS:]
            wanted = before
        count = sum(array_length(_items(text, HEAD)) for text in texts)
        return StoredItems(count, lambda: map(_items, texts), known)


def _row(items: bytes, before: tuple[str, ...]) -> str | None:
    """A row: the rows before it as a line of JSON, then the items, a character for each byte.

    That is read ten times as fast as base64. A store takes no NUL: a byte that does not occur
    stands for it, and comes first on the second line. None if all bytes occur.
    """
    line = json.dumps(before).encode()
    unused = bytes(set(range(1, 256)).difference(line, b"\n", items))[:1]
    if not unused:
        return None
    return b"".join((line, b"\n", unused, items.replace(b"\0", unused))).decode("latin-1")


def _items(row: str, size: int | None = None) -> bytes:
    """The items of a row, packed; or the first bytes of them."""
    start = row.index("\n") + 2
    packed = row[start : start + size if size is not None else None].encode("latin-1")
    return packed.replace(row[start - 1].encode("latin-1"), b"\0")


def _before(row: str) -> tuple[str, ...]:
    return tuple(json.loads(row[: row.index("\n")]))


def _key(run: str, address: Address) -> str:
    version, *path = address
    return "/".join((run, *map(str, path), f"{version:0{_DIGITS}}"))
