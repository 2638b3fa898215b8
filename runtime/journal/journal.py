"""The write side of one run in one process: what is committed, what is about to be, and the
state with both.

Events are added and change the state at once; they are appended to the ledger together, just
before something is done to the world, or when there is nothing left to do. What is added by
one `add` is appended together too, unless it is more than the ledger takes at once. A worker
whose run another has claimed gets StaleEpochError, and nothing of what it had pending is
written. Any thread may use it; a loop's events come from its own thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from threading import Lock, RLock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from turnledger.ledger import (
    NEW,
    Claim,
    Clock,
    ConcurrentAppendError,
    Draft,
    Event,
    Ledger,
    Record,
    Row,
    StoreUnavailableError,
    SystemClock,
    blob_name,
)
from turnledger.projections import Declarations, RunState, fold_together
from turnledger.runtime.journal.loop_progress import Progress, ProgressState
from turnledger.runtime.journal.session_index import SessionIndex, SessionIndexState

if TYPE_CHECKING:
    from turnledger.runtime.loop.effects import Answers

# How often a commit that met others' events, or a store that did not answer, is tried again.
ATTEMPTS = 10
_BESIDE = (Progress(), SessionIndex())


class Known(NamedTuple):
    """All that is known of a run at one version."""

    run: RunState
    progress: ProgressState
    session: SessionIndexState

    @property
    def version(self) -> int:
        return self.run.version

    def after(self, records: Iterable[Record]) -> Known:
        page = list(records)
        beside = fold_together(page, _BESIDE, (self.progress, self.session))
        return Known(self.run.after(page), *beside)

    def is_outdated(self, changes: Iterable[str]) -> bool:
        """Whether it may have to be folded again, as these names mean something else now."""
        return any(name in self.session.names for name in changes)


# An event, or one that can only be made when it is known what comes before it.
Pending: TypeAlias = "Event | Callable[[Known], Event]"
# Called when events are on disk, with what was known before and is known now.
Listener: TypeAlias = Callable[[Known, Known], None]


class _Waiting(NamedTuple):
    """A pending event: its id, and the number of the `add` that it came with."""

    event: Pending
    event_id: str
    group: int


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
        at: int | None = None,
    ) -> None:
        """As the ledger has it now, or had it at a version."""
        self.ledger = ledger
        self.run_id = run_id
        self.declarations = declarations if declarations is not None else Declarations()
        self.claim = claim
        self.clock = clock or SystemClock()
        self.commits = 0
        # What models and tools answered, for a loop that is to be run again without them.
        self.answers: Answers | None = None
        # A checkpoint after so many completed tools; 0 is none.
        self.checkpoint_interval = 0
        # Held while what is known changes; whoever looks first and then adds holds it too.
        self.lock = RLock()
        self._pending: list[_Waiting] = []
        self._blobs: list[tuple[int, bytes]] = []
        self._adds = 0
        self._listeners: list[Listener] = []
        self._news: deque[tuple[Known, Known]] = deque()
        self._telling = Lock()
        self._changes = len(self.declarations.changes)
        self._committed = self.folded(ledger.head(run_id) if at is None else at)
        self._known = self._committed

    # --- what is known ---

    @property
    def known(self) -> Known:
        """With what is pending."""
        with self.lock:
            self._catch_up()
            return self._known

    @property
    def state(self) -> RunState:
        return self.known.run

    @property
    def progress(self) -> ProgressState:
        return self.known.progress

    @property
    def committed(self) -> Known:
        """What is on disk."""
        with self.lock:
            self._catch_up()
            return self._committed

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def is_pending(self, event_id: str) -> bool:
        """Whether the event that was added under this id is not on disk yet."""
        return any(one.event_id == event_id for one in self._pending)

    def pending_records(self) -> list[Record]:
        """What is pending, as it will be but for the store's time, position and digest."""
        with self.lock:
            known, records = self._committed, []
            for one in self._pending:
                records.append(self.provisional(known, one.event, one.event_id))
                known = known.after(records[-1:])
            return records

    def records(self) -> Iterator[Record]:
        """Everything that is known, from the first event on."""
        with self.lock:
            until, pending = self._committed.version, self.pending_records()
        return chain(self._read(until), pending)

    def blob(self, name: str) -> bytes:
        """The bytes that a blob's name means, also if they are still pending."""
        with self.lock:
            for _, content in self._blobs:
                if blob_name(content) == name:
                    return content
        return self.ledger.blob(name)

    def folded(self, until: int, more: Iterable[Record] = ()) -> Known:
        """What is known at a version that is on disk, and some records later."""
        nothing = Known(RunState.initial(self.declarations), ProgressState(), SessionIndexState())
        return nothing.after(chain(self._read(until), more))

    def refold(self) -> None:
        """Fold all of it again: what the program declares has changed."""
        with self.lock:
            changes = len(self.declarations.changes)
            committed = self.folded(self._committed.version)
            self._known = self._with_pending(committed)
            self._committed = committed
            self._changes = changes

    def refresh(self) -> None:
        """Take in what others have appended since: comments, and decisions."""
        with self.lock:
            version = self._committed.version
            tail = list(self.ledger.read(self.run_id, after=version)) if version else []
            if tail:
                self._committed = self._committed.after(tail)
                self._known = self._with_pending(self._committed)

    def _catch_up(self) -> None:
        changes = self.declarations.changes
        if self._changes == len(changes):
            return
        if self._known.is_outdated(changes[self._changes :]):
            self.refold()
        else:
            self._changes = len(changes)

    def _read(self, until: int) -> Iterable[Record]:
        return self.ledger.read(self.run_id, until=until) if until else ()

    # --- changing it ---

    def new_evaluation_id(self) -> str:
        """The id of the evaluation that is begun next."""
        return self.clock.new_id()

    def add(self, *events: Pending, blobs: Iterable[bytes] = ()) -> list[str]:
        """Make these pending, all or none, and give their ids.

        InvalidEventError if one can't be recorded; what a reducer raises passes.
        """
        kept = list(blobs)
        with self.lock:
            known, added = self.known, []
            for event in events:
                event_id = self.clock.new_id()
                known = known.after([self.provisional(known, event, event_id)])
                added.append(_Waiting(event, event_id, self._adds))
            self._known = known
            self._pending += added
            self._blobs += [(self._adds, content) for content in kept]
            self._adds += 1
            return [one.event_id for one in added]

    def discard(self) -> None:
        """Forget what is pending."""
        with self.lock:
            self._pending, self._blobs = [], []
            self._known = self._committed

    def withdraw(self, event_ids: Iterable[str]) -> None:
        """Forget those of these that are pending."""
        with self.lock:
            gone = frozenset(event_ids)
            self._pending = [one for one in self._pending if one.event_id not in gone]
            self._known = self._with_pending(self._committed)

    def commit(self) -> None:
        """Append what is pending; it is on disk when this returns, and listeners are told."""
        self.write()
        self.tell()

    def on_commit(self, listener: Listener) -> Callable[[], None]:
        """Call this after each commit; what is given back ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- how ---

    def write(self) -> None:
        """Append what is pending; listeners are not told yet."""
        with self.lock:
            before = self.committed
            try:
                while self._pending:
                    records = self._append(self._first_batch())
                    self._committed = self._committed.after(records)
                    if self.checkpoint_interval:
                        # Digests are worked out from the last that is known: keep it close.
                        self._committed.run.state_digest  # noqa: B018
                    del self._pending[: len(records)]
                    self.commits += 1
                self._blobs = []
                self._known = self._committed
            finally:
                if self._committed is not before:
                    self._news.append((before, self._committed))

    def tell(self) -> None:
        """Call listeners, one commit after the other: one that commits hears of it later."""
        while self._news and self._telling.acquire(blocking=False):
            try:
                while self._news:
                    before, now = self._news.popleft()
                    for listener in tuple(self._listeners):
                        listener(before, now)
            finally:
                self._telling.release()

    def _first_batch(self) -> int:
        """How many of the pending events go together: whole adds, as many as may."""
        most = self.ledger.limits.max_batch_events
        if len(self._pending) <= most:
            return len(self._pending)
        count = most
        while count and self._pending[count - 1].group == self._pending[count].group:
            count -= 1
        return count or most

    def _append(self, count: int) -> tuple[Record, ...]:
        last = self._pending[count - 1].group
        blobs = [content for group, content in self._blobs if group <= last]
        drafts = self._drafts(count)
        for attempt in range(1, ATTEMPTS + 1):
            version = self._committed.version
            try:
                return self.ledger.append(
                    self.run_id,
                    drafts,
                    expected_version=version or NEW,
                    epoch=self.claim.epoch if self.claim is not None else None,
                    blobs=blobs,
                ).records
            except ConcurrentAppendError:
                # Somebody commented, or decided something: go on from there.
                tail = list(self.ledger.read(self.run_id, after=version))
                if attempt == ATTEMPTS or not tail:
                    raise
                self._committed = self._committed.after(tail)
                self._known = self._with_pending(self._committed)
                drafts = self._drafts(count)
            except StoreUnavailableError:
                # Whether it was written, the ids tell.
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _drafts(self, count: int) -> list[Draft]:
        """The first of what is pending, each made of what comes before it."""
        known, drafts = self._committed, []
        for event, event_id, _ in self._pending[:count]:
            record = self.provisional(known, event, event_id)
            known = known.after([record])
            drafts.append(Draft(record.event, event_id))
        return drafts

    def _with_pending(self, known: Known) -> Known:
        for one in self._pending:
            known = known.after([self.provisional(known, one.event, one.event_id)])
        return known

    def provisional(self, known: Known, event: Pending, event_id: str) -> Record:
        """The record that this event will be, but for the store's time, position and digest."""
        made = event(known) if callable(event) else event
        codec = self.ledger.codec
        tag, data = codec.encode(made)
        row = Row(
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
