"""`RunReader`: the one pass over a run's records that a recovery makes.

It begins before the run is claimed, so that a run that can't be recovered is refused before
anything is written, and goes on after the claim with what was recorded in between. The same pass
checks digests, versions and the index row: recovery goes by nothing that it can check. The session,
whose declarations say how its state is folded, exists only after the first checks: the records
that session state is folded from are kept until then, instead of being read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

from turnledger.ledger import (
    ApprovalDecided,
    CheckpointCleared,
    CheckpointStored,
    CustomEvent,
    Ledger,
    Record,
    RunClaimed,
    RunResumed,
    RunStarted,
    ToolCallDecided,
)
from turnledger.projections import Declarations, RunState, SessionSlices, ToolCallView
from turnledger.projections.projection import tags_read
from turnledger.runtime.journal.known import Known

# What is recorded while no worker has a run, or before its worker begins.
_NOT_WORK = frozenset(
    kind.tag
    for kind in (
        RunClaimed,
        ToolCallDecided,
        ApprovalDecided,
        CustomEvent,
        CheckpointStored,
        CheckpointCleared,
    )
)
_OF_SLICES = tags_read(SessionSlices())


class RunReader:
    """A run, read once: its state, the time that was spent on it, and its calls in doubt.

    `known` has session state as plain JSON until `declare` folds it in a session's types.
    """

    def __init__(self, ledger: Ledger, run_id: UUID) -> None:
        self.run_id = run_id
        self.known = Known.initial()
        # Calls that were decided about in this run itself, and not in what it was forked from.
        self._decided: set[str] = set()
        self._reader = ledger.checked(run_id)
        self._of_slices: list[Record] = []
        # How many changes of a session's declarations session state was folded by.
        self._changes: int | None = None
        self._used = timedelta(0)
        self._began: datetime | None = None
        self._last: datetime | None = None
        # When the first of its work was recorded; None of a request that nobody has begun.
        self.begun_at: datetime | None = None
        # When a person last decided about a call: the run waited until then.
        self.decided_at: datetime | None = None
        self.read_on()

    def read_on(self) -> None:
        """Read, check and fold what was recorded since the last time.

        Raises:
            IntegrityFailureError: A record is damaged or missing, or the index row differs.
            EventDecodeError: A record has a tag or a field that this program does not know.
        """
        self.known = self.known.after(self._noted(self._reader.read_on()))

    def declare(self, declarations: Declarations, *, again: bool = False) -> Known:
        """Fold session state by these declarations, and read on.

        Args:
            declarations: The types and reducers of a session.
            again: It is declared again later: what that takes is kept, as code of the user's may
                declare more until then.
        """
        if self._changes != len(declarations.changes):
            self._changes = len(declarations.changes)
            self.known = self.known.declared(declarations, self._of_slices)
        self.read_on()
        if not again:
            self._of_slices = []
        return self.known

    def in_doubt(self, state: RunState | None = None) -> tuple[ToolCallView, ...]:
        """The calls whose outcome is unknown, and about which nothing is decided.

        That a call is to run again is decided for one run: a fork does not inherit it.

        Args:
            state: A later state of the run than the one that was read.
        """
        state = state or self.known.run
        calls = (c for c in state.tools.pending() if c.status in ("started", "in_doubt"))
        is_fork = state.summary.kind == "fork"
        return tuple(call for call in calls if not self._is_decided(call, is_fork=is_fork))

    def _is_decided(self, call: ToolCallView, *, is_fork: bool) -> bool:
        if call.approval == "denied":
            return True
        inherited = is_fork and call.decision == "retry" and call.call_id not in self._decided
        return call.lasting_decision is not None and not inherited

    @property
    def time_used(self) -> timedelta:
        """How long the run was worked on so far: pauses between attempts do not count."""
        return self._used + self._since_began()

    def _noted(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            if record.tag in _OF_SLICES:
                self._of_slices.append(record)
            if record.tag == ToolCallDecided.tag:
                assert isinstance(record.event, ToolCallDecided)
                self._decided.add(record.event.call_id)
                if not record.event.until_resumed:
                    self.decided_at = record.recorded_at
            elif record.tag == ApprovalDecided.tag:
                self.decided_at = record.recorded_at
            elif record.tag == RunStarted.tag:
                self._decided.clear()
            if record.tag not in _NOT_WORK:
                self._note_time(record)
            yield record

    def _note_time(self, record: Record) -> None:
        if record.tag == RunStarted.tag:
            self._used, self._began = timedelta(0), record.recorded_at
            self.begun_at = None
        else:
            self.begun_at = self.begun_at or record.recorded_at
        if record.tag == RunResumed.tag:
            # The attempt before it ended, whenever its process did, with its last record.
            self._used += self._since_began()
            self._began = record.recorded_at
        self._last = record.recorded_at

    def _since_began(self) -> timedelta:
        if self._began is None or self._last is None:
            return timedelta(0)
        return self._last - self._began
