"""What `Ledger.append` answers."""

from __future__ import annotations

from turnledger.ledger.runs.append import Outcome
from turnledger.ledger.runs.codec import Codec
from turnledger.ledger.runs.record import Record


class Appended:
    """What came of an append: the records, and whether they had been there before."""

    __slots__ = ("_codec", "_outcome")

    def __init__(self, outcome: Outcome, codec: Codec) -> None:
        self._outcome = outcome
        self._codec = codec

    @property
    def duplicate(self) -> bool:
        """True if exactly these events had been recorded by an earlier append."""
        return self._outcome.duplicate

    @property
    def version(self) -> int:
        """The run's version with these events."""
        return self._outcome.version

    @property
    def position(self) -> int:
        """The last event's place in the whole ledger."""
        return self._outcome.positions[-1]

    @property
    def digest(self) -> str:
        return self._outcome.new_rows[-1][5].hex()

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(Record(row, self._codec) for row in self._outcome.rows)

    def __repr__(self) -> str:
        rows = self._outcome.new_rows
        return f"<Appended to {rows[0][0]}: {len(rows)} events>"
