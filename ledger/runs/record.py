"""Records and stored rows: an event with its place in a run and in the ledger, and its digest.

Stores give rows as plain tuples (`Columns`), because a named tuple for each would slow reading
down by a quarter. Nothing outside of this module counts their columns: `Ledger.read` wraps them
in records, and code below the ledger names them with `as_row`. A record converts ids, times and
the event when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

import msgspec

from turnledger.ledger.clock import to_datetime
from turnledger.ledger.errors import EventDecodeError, IntegrityFailureError
from turnledger.ledger.events.types import Event
from turnledger.ledger.runs.codec import Codec


class Draft(NamedTuple):
    """An event to append under an id of the caller's; appending the same drafts again is safe."""

    event: Event
    event_id: UUID | str


# A stored event as a driver gives it: the fields of `Row`, and of `NewRow`, in their order.
Columns: TypeAlias = tuple[int, str, int, str, str, int, bytes, str]
NewColumns: TypeAlias = tuple[str, int, str, str, int, bytes, str]


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


# Names the columns of a row. `Row._make` would run a Python function for each; this is one in C.
as_row = cast(Callable[[Columns], Row], partial(tuple.__new__, Row))
as_raw_row = cast(Callable[[tuple[Any, ...]], RawRow], partial(tuple.__new__, RawRow))


class Record(msgspec.Struct, eq=False, gc=False):
    """One event as recorded in a run; immutable."""

    # A Struct, because it is made in C: three times as fast as a class with an `__init__`.
    _columns: Columns
    _codec: Codec
    _event: Event | None = None

    @property
    def row(self) -> Row:
        """The stored columns by name, ids as text and the time in microseconds."""
        row = as_row(self._columns)
        # Spelt out: a generator would take three times as long, for every record of a page.
        if not (
            isinstance(row.run_id, str)
            and isinstance(row.tag, str)
            and isinstance(row.event_id, str)
            and isinstance(row.data, str)
        ):
            raise IntegrityFailureError(
                f"The record at position {row.position} holds damaged text. Run `turnledger "
                "verify`."
            )
        return row

    @property
    def position(self) -> int:
        """Its place in the whole ledger: growing, not dense."""
        return self._columns[0]

    @property
    def run_id(self) -> UUID:
        """The run that holds the event; in a fork's shared part this is the ancestor's id."""
        return UUID(self._columns[1])

    @property
    def run_key(self) -> str:
        """The run's id as text, as it is stored: cheaper than `run_id`."""
        return self._columns[1]

    @property
    def version(self) -> int:
        """Its place in its run: 1, 2, 3 ... without gaps."""
        return self._columns[2]

    @property
    def tag(self) -> str:
        """The event's type, as it is stored."""
        return self._columns[3]

    @property
    def event_id(self) -> UUID:
        """The event's id, unique in the ledger."""
        return UUID(self._columns[4])

    @property
    def event_key(self) -> str:
        """The event's id as text, as it is stored: cheaper than `event_id`."""
        key = self._columns[4]
        return key if type(key) is str else self.row.event_id

    @property
    def commit(self) -> int:
        """Identifies the commit within the run: events that were appended together share it.

        It is the commit's time in microseconds since 1970 (UTC), and grows from commit to commit.
        """
        return self._columns[5]

    @property
    def recorded_at(self) -> datetime:
        """The time of the commit, by the ledger's clock."""
        return to_datetime(self._columns[5])

    @property
    def digest(self) -> str:
        """SHA-256 over the record and the digest of the one before it, in hexadecimal."""
        return self._columns[6].hex()

    @property
    def data(self) -> str:
        """The event's JSON text: the very bytes that the digest covers."""
        return self.row.data

    @property
    def event(self) -> Event:
        """The event, decoded once."""
        event = self._event
        if event is None:
            columns, codec = self._columns, self._codec
            decoder = codec._decoders.get(columns[3])
            if decoder is not None:
                try:
                    event = self._event = decoder.decode(columns[7])
                    return event
                except Exception:  # noqa: S110 - the codec says what is wrong with it
                    pass
            try:
                event = self._event = codec.decode(columns[3], columns[7])
            except EventDecodeError as error:
                raise error.located(columns[1], columns[2]) from None
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(self._columns)

    def __repr__(self) -> str:
        return f"<Record {self.run_key}@{self.version} {self.tag}>"
