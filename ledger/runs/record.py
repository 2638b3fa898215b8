"""A record: an event as stored, with its place and its digest.

Ids, times and the event itself are converted when they are asked for; converting
them all for every record would halve the speed of reading.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from turnledger.ledger.clock import to_datetime
from turnledger.ledger.events.types import Event
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.record_rows import Row


class Draft(NamedTuple):
    """An event that is to be appended under an id of the caller's.

    Appending the same drafts again is safe: the ledger knows the ids.
    """

    event: Event
    event_id: UUID | str


class Record:
    """One entry of the book; immutable."""

    __slots__ = ("_codec", "_event", "row")

    row: Row

    def __init__(self, row: Row, codec: Codec) -> None:
        self.row = row
        self._codec = codec
        self._event: Event | None = None

    @property
    def position(self) -> int:
        """Its place in the whole ledger: growing, not dense."""
        return self.row[0]

    @property
    def run_id(self) -> UUID:
        return UUID(self.row[1])

    @property
    def version(self) -> int:
        """Its place in its run: 1, 2, 3 ... without gaps."""
        return self.row[2]

    @property
    def tag(self) -> str:
        return self.row[3]

    @property
    def event_id(self) -> UUID:
        return UUID(self.row[4])

    @property
    def recorded_at(self) -> datetime:
        """When the ledger took it; all events of one commit share it, and no others of the run."""
        return to_datetime(self.row[5])

    @property
    def digest(self) -> str:
        return self.row[6].hex()

    @property
    def data(self) -> str:
        """The event's JSON text: the very bytes that the digest covers."""
        return self.row[7]

    @property
    def event(self) -> Event:
        event = self._event
        if event is None:
            row = self.row
            event = self._event = self._codec.decode(row[3], row[7])
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.row == other.row

    def __hash__(self) -> int:
        return hash(self.row)

    def __repr__(self) -> str:
        return f"<Record {self.row[1]}@{self.row[2]} {self.row[3]}>"
