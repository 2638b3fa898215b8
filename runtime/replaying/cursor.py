"""A cursor over a recorded run: read once, from its first record to its last.

Records are of two kinds. What the loop decided is decided again by the replay and compared.
Everything else came from outside (claims, decisions of people, notes, files): the replay takes
it as it was, at the place where it was recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from turnledger.ledger import (
    ApprovalDecided,
    CheckpointStored,
    CustomEvent,
    Event,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    ResourceSnapshotted,
    RunAbandoned,
    RunClaimed,
    RunParked,
    RunResumed,
    RunWaiting,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
from turnledger.projections.projection import tags_of

# Events from outside. Compared by tag, so that records of other types need no decoding here.
_INPUTS = tags_of(
    RunClaimed,
    CustomEvent,
    ToolCallDecided,
    ApprovalDecided,
    ResourceSnapshotted,
    CheckpointStored,
)
# Events of durable steps in a tool, which is not run again. They have no evaluation.
_STEPS = tags_of(
    RunWaiting,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
)
# An attempt ended before one of these: what it was about to do next was never done.
_ENDS = tags_of(RunResumed, RunAbandoned, RunParked)


class RecordCursor:
    """The records of a run that are still to come, with look-ahead."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._source: Iterator[Record] = iter(records)
        self._ahead: deque[Record] = deque()
        # The steps that were taken so far: one may have made the run wait.
        self._steps: set[str] = set()

    def peek(self, place: int = 0) -> Record | None:
        """The record that comes next, or `place` records later; None past the end."""
        ahead = self._ahead
        while len(ahead) <= place:
            record = next(self._source, None)
            if record is None:
                return None
            ahead.append(record)
        return ahead[place]

    def take(self) -> Record:
        """The next record; there must be one."""
        record = self.peek()
        assert record is not None
        return self._ahead.popleft()

    def inputs(self) -> list[Record]:
        """Take the records from outside that come before the loop's next step."""
        taken: list[Record] = []
        while (record := self.peek()) is not None and self._is_input(record):
            taken.append(self._ahead.popleft())
        return taken

    def _is_input(self, record: Record) -> bool:
        if record.tag in _INPUTS:
            return True
        if record.tag not in _STEPS:
            return False
        event = record.event
        if isinstance(event, RunWaiting):
            return bool(event.call_ids) and self._steps.issuperset(event.call_ids)
        if getattr(event, "evaluation_id", None) != "":
            return False
        self._steps.add(getattr(event, "call_id", ""))
        return True

    def ends_an_attempt(self) -> bool:
        """Whether the attempt is over here: it was resumed, abandoned or parked."""
        record = self.peek()
        return record is not None and record.tag in _ENDS

    def later(self, kind: type[Event], most: int = 20) -> Record | None:
        """The next record of a kind, among the next `most`; None if there is none."""
        for place in range(most):
            record = self.peek(place)
            if record is None:
                return None
            if isinstance(record.event, kind):
                return record
        return None
