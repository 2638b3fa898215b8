"""The write side of one run in one process: what is committed, what is about to be, and the
state with both.

Events are added and change the state at once; they are appended to the ledger together, just
before something is done to the world, or when there is nothing left to do. Only one thread
adds and commits. A worker whose run another has claimed gets StaleEpochError, and nothing of
what it had pending is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ledger import (
    ANY,
    NEW,
    Claim,
    Clock,
    ConcurrentAppendError,
    Draft,
    Event,
    Ledger,
    Record,
    StoreUnavailableError,
    SystemClock,
)
from projections import Declarations, RunState, fold
from runtime.progress import Progress, ProgressState

# How often a commit that met others' events, or a store that did not answer, is tried again.
ATTEMPTS = 10
_PROGRESS = Progress()


class Known(NamedTuple):
    """All that is known of a run at one version."""

    run: RunState
    progress: ProgressState

    @property
    def version(self) -> int:
        return self.run.version

    def after(self, records: Iterable[Record]) -> Known:
        page = list(records)
        return Known(self.run.after(page), fold(page, _PROGRESS, self.progress))


# An event, or one that can only be made when it is known what comes before it.
Pending: TypeAlias = "Event | Callable[[Known], Event]"
# Called when events are on disk, with what was known before and is known now.
Listener: TypeAlias = Callable[[Known, Known], None]


class Journal:
    """A run as its worker has it."""

    def __init__(
        self,
        ledger: Ledger,
        run_id: UUID,
        *,
        declarations: Declarations | None = None,
        claim: Claim | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.ledger = ledger
        self.run_id = run_id
        self.declarations = declarations if declarations is not None else Declarations()
        self.claim = claim
        self.clock = clock or SystemClock()
        self.commits = 0
        self._pending: list[tuple[Pending, str]] = []
        self._blobs: list[bytes] = []
        self._listeners: list[Listener] = []
        self._committed = self._nothing()
        if ledger.head(run_id):
            self._committed = self._committed.after(ledger.read(run_id))
        self._known = self._committed

    def _nothing(self) -> Known:
        return Known(RunState.initial(self.declarations), _PROGRESS.initial())

    # --- what is known ---

    @property
    def known(self) -> Known:
        """With what is pending."""
        return self._known

    @property
    def state(self) -> RunState:
        return self._known.run

    @property
    def progress(self) -> ProgressState:
        return self._known.progress

    @property
    def committed(self) -> Known:
        """What is on disk."""
        return self._committed

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def refold(self) -> None:
        """Fold all of it again: what the program declares has changed."""
        if not self._committed.version and not self._pending:
            self._committed = self._known = self._nothing()
            return
        committed = self._nothing()
        if self._committed.version:
            records = self.ledger.read(self.run_id, until=self._committed.version)
            committed = committed.after(records)
        self._committed = committed
        self._known = self._with_pending(committed)

    # --- changing it ---

    def add(self, *events: Pending, blobs: Iterable[bytes] = ()) -> None:
        """Make these pending, all or none: InvalidEventError if one can't be recorded."""
        known, added = self._known, []
        for event in events:
            event_id = self.clock.new_id()
            known = known.after([self._provisional(known, event, event_id)])
            added.append((event, event_id))
        self._known = known
        self._pending += added
        self._blobs += blobs

    def discard(self) -> None:
        """Forget what is pending."""
        self._pending, self._blobs = [], []
        self._known = self._committed

    def commit(self) -> None:
        """Append what is pending; it is on disk when this returns, and listeners are told."""
        if not self._pending:
            return
        before = self._committed
        records = self._append()
        self._committed = self._known = self._committed.after(records)
        self._pending, self._blobs = [], []
        self.commits += 1
        for listener in tuple(self._listeners):
            listener(before, self._committed)

    def on_commit(self, listener: Listener) -> Callable[[], None]:
        """Call this after each commit; what is given back ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- how ---

    def _append(self) -> tuple[Record, ...]:
        drafts = self._drafts()
        for attempt in range(1, ATTEMPTS + 1):
            version = self._committed.version
            try:
                return self.ledger.append(
                    self.run_id,
                    drafts,
                    expected_version=version or NEW,
                    epoch=self.claim.epoch if self.claim is not None else None,
                    blobs=self._blobs,
                ).records
            except ConcurrentAppendError:
                # Somebody commented, or decided something: go on from there.
                tail = list(self.ledger.read(self.run_id, after=version))
                if attempt == ATTEMPTS or not tail:
                    raise
                self._committed = self._committed.after(tail)
                self._known = self._with_pending(self._committed)
                drafts = self._drafts()
            except StoreUnavailableError:
                # Whether it was written, the ids tell.
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _drafts(self) -> list[Draft]:
        """What is pending, made of what comes before each."""
        known, drafts = self._committed, []
        for event, event_id in self._pending:
            record = self._provisional(known, event, event_id)
            known = known.after([record])
            drafts.append(Draft(record.event, event_id))
        return drafts

    def _with_pending(self, known: Known) -> Known:
        for event, event_id in self._pending:
            known = known.after([self._provisional(known, event, event_id)])
        return known

    def _provisional(self, known: Known, event: Pending, event_id: str) -> Record:
        """The record that this event will be, but for the store's time, position and digest."""
        made = event(known) if callable(event) else event
        codec = self.ledger.mapper.codec
        tag, data = codec.encode(made)
        row = (
            0,
            str(self.run_id),
            known.version + 1,
            tag,
            event_id,
            self.clock.micros(),
            b"",
            data.decode(),
        )
        return Record(row, codec)


__all__ = ["ANY", "Journal", "Known", "Listener", "Pending"]
