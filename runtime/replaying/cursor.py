"""A recorded run, read once from its beginning to its end by a loop that is run again.

What the loop itself decided is to be decided again. Everything else was put in from outside:
claims, decisions of people, comments, files. It is taken as it was where it stands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from turnledger.ledger import (
    CheckpointStored,
    CustomEvent,
    Event,
    Record,
    ResourceSnapshotted,
    RunAbandoned,
    RunClaimed,
    RunParked,
    RunResumed,
    ToolCallDecided,
)
from turnledger.projections.projection import tags_of

# From outside; the loop decides none of these. Tags, because most records are none of them.
_INPUTS = tags_of(RunClaimed, CustomEvent, ToolCallDecided, ResourceSnapshotted, CheckpointStored)
# What was being done when one of these was recorded, was not done.
_ENDS = tags_of(RunResumed, RunAbandoned, RunParked)


class Recording:
    """The records that are still to come."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._source: Iterator[Record] = iter(records)
        self._ahead: deque[Record] = deque()

    def peek(self, place: int = 0) -> Record | None:
        """The record that comes next, or so many later; None if it ends before that."""
        ahead = self._ahead
        while len(ahead) <= place:
            record = next(self._source, None)
            if record is None:
                return None
            ahead.append(record)
        return ahead[place]

    def take(self) -> Record:
        record = self.peek()
        assert record is not None
        return self._ahead.popleft()

    def inputs(self) -> list[Record]:
        """Take what was put in from outside here, up to what the loop did next."""
        taken: list[Record] = []
        while (record := self.peek()) is not None and record.tag in _INPUTS:
            taken.append(self._ahead.popleft())
        return taken

    def ends_an_attempt(self) -> bool:
        """Whether the attempt is over here, however it ended: another begins, or none."""
        record = self.peek()
        return record is not None and record.tag in _ENDS

    def later(self, kind: type[Event], most: int = 20) -> Record | None:
        """The next record of a kind, among the next few."""
        for place in range(most):
            record = self.peek(place)
            if record is None:
                return None
            if isinstance(record.event, kind):
                return record
        return None
