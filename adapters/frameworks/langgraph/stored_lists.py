"""Stored lists: the items of long lists as derived data, so that a thread is loaded fast.

The events have all of it, as what each checkpoint added. Every now and then the items since the
last time are also stored in a row, packed; a reader takes these rows and only the last events.
Rows that are missing cost time and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from turnledger.adapters.frameworks.langgraph.known_values import KnownList, StoredItems
from turnledger.adapters.frameworks.langgraph.packed_values import (
    HEAD,
    Address,
    array_head,
    is_message,
    made_messages,
    message,
    pack,
    unpack,
)
from turnledger.ledger import Ledger
from turnledger.ledger.stores.derived_data import KEY_BYTES

NAME = "langgraph.lists"
# How many items a row has at least, and how many rows are read at a time.
ITEMS = 16
ROWS = 32
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
        row = _row(found)
        if row is None or "\n" in key or len(key.encode()) > KEY_BYTES:
            return
        self._data.put({key: row})
        found.row = key
        found.stored = len(found.items)

    def find(self, run: str, address: Address) -> StoredItems | None:
        """The items of a list in an event of this run; None if a row is missing."""
        key = last = _key(run, address)
        parts: list[_Part] = []
        rows: dict[str, str] = {}
        while key:
            if key not in rows:
                rows = self._data.last(key[:-_DIGITS], key, ROWS)
                if key not in rows:
                    return None
            parts.append(_Part(rows[key]))
            key = parts[-1].before
        return StoredItems(parts[0].counts()[0], parts[::-1], last)


class _Part:
    """A row: three lines, read as late and as little as possible.

    The first line is the key of the row before it, if there is one. The second line is JSON: how
    many items the rows up to here have, and the sizes of messages, if all items of this row are
    some. The third line is a packed list of the items, or of the messages' contents, with a
    character for each byte: that is read ten times as fast as base64. A store takes no NUL: a byte
    that does not occur stands for it, and comes first.
    """

    def __init__(self, row: str) -> None:
        self._row = row
        self._second = row.index("\n") + 1
        self._end = row.index("\n", self._second)

    @property
    def before(self) -> str:
        """The key of the row before it."""
        return self._row[: self._second - 1]

    def counts(self) -> tuple[int, list[int]]:
        """How many items there are up to here, and the sizes of this row's messages."""
        count, sizes = json.loads(self._row[self._second : self._end])
        return count, sizes

    @property
    def items(self) -> list[Any]:
        """The items of plain types and Packed."""
        packed = self._packed()
        if not self._are_messages:
            found: list[Any] = unpack(packed)
            return found
        ends = accumulate(self.counts()[1], initial=HEAD)
        return [message(packed[start:end]) for start, end in pairwise(ends)]

    def loaded(self, serde: SerializerProtocol) -> Sequence[Any]:
        """The items, made by the serializer."""
        made: Sequence[Any] | None = None
        if not self._are_messages:
            made = serde.loads_typed(("msgpack", self._packed()))
        elif type(serde) is JsonPlusSerializer:
            made = made_messages(self._packed())
        return made if made is not None else serde.loads_typed(("msgpack", pack(self.items)))

    @property
    def _are_messages(self) -> bool:
        return not self._row.startswith("[]]", self._end - 3)

    def _packed(self) -> bytes:
        packed = self._row[self._end + 2 :].encode("latin-1")
        return packed.replace(self._row[self._end + 1].encode("latin-1"), b"\0")


def _row(found: KnownList) -> str | None:
    """The row of items that are not stored yet, as `_Part` reads it; None if all bytes occur."""
    items = found.items[found.stored :]
    contents = [item.data for item in items] if all(map(is_message, items)) else []
    packed = array_head(len(items)) + b"".join(contents) if contents else pack(items)
    unused = bytes(set(range(1, 256)).difference(packed))[:1]
    if not unused:
        return None
    counts = json.dumps([len(found.items), [*map(len, contents)]])
    body = unused + packed.replace(b"\0", unused)
    return "\n".join((found.row, counts, body.decode("latin-1")))


def _key(run: str, address: Address) -> str:
    version, *path = address
    return "/".join((run, *map(str, path), f"{version:0{_DIGITS}}"))
