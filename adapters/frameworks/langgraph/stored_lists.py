"""Stored lists: the items of long lists as derived data, so that a thread is loaded fast.

The events have all of it, as what each checkpoint added. Every now and then the items since the
last time are also stored in a row, packed; a reader takes these rows and only the last events.
Rows that are missing cost time and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
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
        row = _row(found.items, found.stored, found.rows)
        if row is None or len(key.encode()) > KEY_BYTES:
            return
        self._data.put({key: row})
        found.rows = (*found.rows, key)[-ROWS:]
        found.stored = len(found.items)

    def find(self, run: str, address: Address) -> StoredItems | None:
        """The items of a list in an event of this run; None if a row is missing."""
        last = _key(run, address)
        # Nearly always all that is wanted.
        rows = self._data.last(last[:-_DIGITS], last, ROWS + 1)
        if last not in rows:
            return None
        parts = [_Part(rows[last])]
        names, count, _ = parts[0].line()
        wanted = names
        while wanted:
            if more := [key for key in wanted if key not in rows]:
                rows |= self._data.get(more)
                if any(key not in rows for key in more):
                    return None
            parts[:0] = [_Part(rows[key]) for key in wanted]
            wanted = parts[0].line()[0]
        return StoredItems(count, parts, (*names, last)[-ROWS:])


class _Part:
    """A row: two lines, of which the second is read as late and as little as possible.

    The first line is JSON: the rows before it, how many items these and this one have together,
    and the sizes of messages, if all of its items are some. The second line is a packed list of the items, or of the messages' contents, with a character
    for each byte: that is read ten times as fast as base64. A store takes no NUL: a byte that does
    not occur stands for it, and comes first.
    """

    def __init__(self, row: str) -> None:
        self._row = row
        self._end = row.index("\n")

    def line(self) -> tuple[list[str], int, list[int]]:
        """What the first line says."""
        before, count, sizes = json.loads(self._row[: self._end])
        return before, count, sizes

    @property
    def items(self) -> list[Any]:
        """The items of plain types and Packed."""
        packed = self._packed()
        if not self._are_messages:
            found: list[Any] = unpack(packed)
            return found
        ends = accumulate(self.line()[2], initial=HEAD)
        return [message(packed[start:end]) for start, end in pairwise(ends)]

    def loaded(self, serde: SerializerProtocol) -> Sequence[Any]:
        """The items, made by the serializer."""
        if not self._are_messages:
            made: list[Any] = serde.loads_typed(("msgpack", self._packed()))
            return made
        if type(serde) is JsonPlusSerializer:
            with suppress(Exception):  # then the serializer says what becomes of it
                return made_messages(self._packed())
        made = serde.loads_typed(("msgpack", pack(self.items)))
        return made

    @property
    def _are_messages(self) -> bool:
        return not self._row.startswith("[]]", self._end - 3)

    def _packed(self) -> bytes:
        packed = self._row[self._end + 2 :].encode("latin-1")
        return packed.replace(self._row[self._end + 1].encode("latin-1"), b"\0")


def _row(every: list[Any], stored: int, before: tuple[str, ...]) -> str | None:
    """The row of items that are not stored yet, as `_Part` reads it; None if all bytes occur."""
    items = every[stored:]
    contents = [item.data for item in items] if all(map(is_message, items)) else []
    packed = array_head(len(items)) + b"".join(contents) if contents else pack(items)
    line = json.dumps([before, len(every), [*map(len, contents)]]).encode()
    unused = bytes(set(range(1, 256)).difference(line, b"\n", packed))[:1]
    if not unused:
        return None
    return b"".join((line, b"\n", unused, packed.replace(b"\0", unused))).decode("latin-1")


def _key(run: str, address: Address) -> str:
    version, *path = address
    return "/".join((run, *map(str, path), f"{version:0{_DIGITS}}"))
