"""Records and stored rows: an event with its place in a run and in the ledger, and its digest.

Stores give rows, which are named tuples of plain columns; `Ledger.read` gives records. A record
converts ids, times and the event when they are asked for: converting them all for every record
would halve the speed of reading.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

from turnledger.ledger.clock import to_datetime
from turnledger.ledger.events.types import Event
from turnledger.ledger.runs.codec import Codec


class Draft(NamedTuple):
    """An event that is to be appended under an id of the caller's.

    Appending the same drafts again is safe: the ledger knows the ids.
    """

    event: Event
    event_id: UUID | str


class Row(NamedTuple):
    """A stored event as columns. `recorded_at` is in microseconds since 1970 (UTC)."""

    position: int
    run_id: str
    version: int
    tag: str
    event_id: str
    recorded_at: int
    digest: bytes
    data: str


class NewRow(NamedTuple):
    """A row before the store has given it a position."""

    run_id: str
    version: int
    tag: str
    event_id: str
    recorded_at: int
    digest: bytes
    data: str


class RawRow(NamedTuple):
    """A row as it is on disk, for verification: text as bytes, and any column of any type."""

    position: Any
    run_id: Any
    version: Any
    tag: Any
    event_id: Any
    recorded_at: Any
    digest: Any
    data: Any


_Columns: TypeAlias = tuple[Any, ...]
# A named tuple of columns in their order. `Row(...)` and `Row._make` would run a Python function
# for each event that is read or written; these are one call in C.
as_row = cast(Callable[[_Columns], Row], partial(tuple.__new__, Row))
as_new_row = cast(Callable[[_Columns], NewRow], partial(tuple.__new__, NewRow))
as_raw_row = cast(Callable[[_Columns], RawRow], partial(tuple.__new__, RawRow))


class Record:
    """One event as recorded in a run; immutable."""

    __slots__ = ("_codec", "_event", "row")

    row: Row

    def __init__(self, row: Row, codec: Codec, event: Event | None = None) -> None:
        """`event` is what the row's data decodes to, if that is known already."""
        self.row = row
        self._codec = codec
        self._event = event

    @property
    def position(self) -> int:
        """Its place in the whole ledger: growing, not dense."""
        return self.row.position

    @property
    def run_id(self) -> UUID:
        """The run that holds the event; in a fork's shared part this is the ancestor's id."""
        return UUID(self.row.run_id)

    @property
    def version(self) -> int:
        """Its place in its run: 1, 2, 3 ... without gaps."""
        return self.row.version

    @property
    def tag(self) -> str:
        """The event's type, as it is stored."""
        return self.row.tag

    @property
    def event_id(self) -> UUID:
        """The event's id, unique in the ledger."""
        return UUID(self.row.event_id)

    @property
    def commit(self) -> int:
        """Identifies the commit within the run: events that were appended together share it.

        It is the commit's time in microseconds since 1970 (UTC), and grows from commit to commit.
        """
        return self.row.recorded_at

    @property
    def recorded_at(self) -> datetime:
        """The time of the commit, by the ledger's clock."""
        return to_datetime(self.row.recorded_at)

    @property
    def digest(self) -> str:
        """SHA-256 over the record and the digest of the one before it, in hexadecimal."""
        return self.row.digest.hex()

    @property
    def data(self) -> str:
        """The event's JSON text: the very bytes that the digest covers."""
        return self.row.data

    @property
    def event(self) -> Event:
        """The event, decoded once."""
        event = self._event
        if event is None:
            row = self.row
            event = self._event = self._codec.decode(row.tag, row.data)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.row == other.row

    def __hash__(self) -> int:
        return hash(self.row)

    def __repr__(self) -> str:
        return f"<Record {self.row.run_id}@{self.row.version} {self.row.tag}>"
