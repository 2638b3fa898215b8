"""Stored lists: the items of long lists as derived data, so that a thread is loaded fast.

The events have all of it, as what each checkpoint added. Every now and then the items since the
last time are also stored in a row, packed; a reader takes these rows and only the last events.
Rows that are missing cost time and nothing else.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec

from turnledger.adapters.frameworks.langgraph.known_values import KnownList, StoredItems
from turnledger.adapters.frameworks.langgraph.packed_values import Address, base64, pack, unpack
from turnledger.ledger import Ledger

NAME = "langgraph.lists"
# How many items a row has at least, and how many rows before it a row names.
ITEMS = 16
ROWS = 31
_LONGEST_KEY = 1000


class _Row(msgspec.Struct, frozen=True):
    """Items of a list, and the rows with those before them, in order."""

    items: str
    before: tuple[str, ...] = ()


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
        if len(key) > _LONGEST_KEY:
            return
        row = _Row(base64(pack(found.items[found.stored :])), found.rows)
        self._data.put({key: msgspec.json.encode(row).decode()})
        found.rows = (*found.rows, key)[-ROWS:]
        found.stored = len(found.items)

    def find(self, run: str, address: Address) -> StoredItems | None:
        """The items of a list in an event of this run; None if a row is missing."""
        last = _key(run, address)
        wanted: tuple[str, ...] = (last,)
        parts: list[list[Any]] = []
        known: tuple[str, ...] = ()
        while wanted:
            rows = self._data.get(wanted)
            if len(rows) < len(wanted):
                return None
            for key in reversed(wanted):
                row = msgspec.json.decode(rows[key], type=_Row)
                parts.append(unpack(b64decode(row.items)))
                if key == last:
                    known = (*row.before, last)[-ROWS:]
            wanted = row.before
        return StoredItems([item for part in reversed(parts) for item in part], known)


def _key(run: str, address: Address) -> str:
    return "/".join((run, *map(str, address)))
