"""`Journal`: the write side of one run: its committed events, pending events, and their fold.

Events are added and change the state at once. They are appended to the ledger together, just
before an effect is performed or when there is nothing left to do, so that one commit covers
everything that led to the effect. What one `add` brings is appended together too, unless it is
more than the ledger takes at once. When another worker has claimed the run, a commit is a
StaleEpochError and nothing that was pending is written.

Each event is encoded once, when it is added: those bytes are what the store gets. It is folded
twice: when it is added, with a provisional record, and when the store has given its time,
position and digest. Only a conflict, a withdrawal or a new declaration folds what is pending
again, and makes events again that depend on what comes before them.

Any thread may use a journal; a loop's events come from its own thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from turnledger.ledger import (
    NEW,
    ApprovalDecided,
    Claim,
    Clock,
    ConcurrentAppendError,
    Draft,
    Event,
    Ledger,
    Record,
    Row,
    StaleEpochError,
    StoreUnavailableError,
    SystemClock,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    blob_name,
)
from turnledger.ledger.runs.append import Entry
from turnledger.projections import Declarations, RunState
from turnledger.projections.projection import tags_of
from turnledger.runtime.agent.models.limits import TurnLimit
from turnledger.runtime.agent.prompts.override_texts import RecordedPrompt
from turnledger.runtime.agent.run_control import at_the_disk
from turnledger.runtime.journal.known import Known
from turnledger.runtime.journal.loop_progress import ProgressState

# How often a commit that met others' events, or a store that did not answer, is tried again.
ATTEMPTS = 10


def provisional_record(
    ledger: Ledger, run_id: UUID, version: int, entry: Entry, micros: int
) -> Record:
    """The record that an entry will be, before the store gives time, position and digest.

    Folds can do without these: no digest of a state covers them.
    """
    data = entry.data.decode()
    row = Row(0, str(run_id), version, entry.tag, entry.event_id, micros, b"", data)
    return Record(row, ledger.codec, entry.event)


# Makes an event of the state before it, such as a checkpoint with that state's digest.
Factory: TypeAlias = Callable[[Known], Event]


@dataclass(frozen=True)
class Changes:
    """Events that were encoded and folded already: those of a tool's overlay.

    `after` is what they make of `before`. The journal takes it over if it still is at `before`;
    if other events came in between, it folds these on top of them.
    """

    entries: tuple[Entry, ...]
    records: tuple[Record, ...]
    before: Known
    after: Known

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(entry.event for entry in self.entries)


# What `add` takes: an event, what makes one, or a tool's.
Addition: TypeAlias = Event | Factory | Changes
# Called when events are on disk, with the state before the commit and the state now.
Listener: TypeAlias = Callable[[Known, Known], None]


_OUTCOMES = tags_of(ToolCallCompleted, ToolCallFailed)
_DECISIONS = tags_of(ApprovalDecided, ToolCallDecided)


class _DecidedMeanwhile(Exception):  # noqa: N818 - it stays in this module
    """A person decided about a call, and what is pending may not be what comes next."""


class _Pending(NamedTuple):
    """An event that is not on disk yet.

    `record` is provisional: its time is the journal's, and it has no position and no digest.
    `group` is the number of the `add` that it came with. With a `factory`, the event is made
    again if the state before it changes; without one, its bytes stay as they are.
    """

    entry: Entry
    record: Record
    group: int
    factory: Factory | None = None


class Journal:
    """The events of one run as its worker sees them: on disk, and about to be."""

    def __init__(
        self,
        ledger: Ledger,
        run_id: UUID,
        *,
        declarations: Declarations | None = None,
        claim: Claim | None = None,
        clock: Clock | None = None,
        known: Known | None = None,
        at: int | None = None,
    ) -> None:
        """Read and fold the run.

        Args:
            ledger: Where the run is, or will be.
            run_id: The run.
            declarations: The types and reducers of its session.
            claim: The worker's claim; its epoch goes with every append.
            clock: Gives event ids and provisional times.
            known: The run's state by these declarations, if it is folded already.
            at: The version to begin with, instead of the last one.
        """
        self.ledger = ledger
        self.run_id = run_id
        self.declarations = declarations if declarations is not None else Declarations()
        self.claim = claim
        self.clock = clock or SystemClock()
        self.commits = 0
        # A checkpoint after so many completed tools; 0 means no checkpoints.
        self.checkpoint_interval = 0
        # Seconds for tools that have no time-out of their own; None means no limit.
        self.tool_timeout: float | None = None
        # How often the model may be asked again for an output that can't be parsed.
        self.output_retries = 0
        # Whether the claim's lease was lost to another worker.
        self.is_lost: Callable[[], bool] = bool
        # The most replies of the model, while a loop runs the run; None means no limit.
        self.turn_limit: TurnLimit | None = None
        # The `runtime.steps.record.recorder.StepRecorder` of steps in tools, once there was one.
        self.steps: Any = None
        # Held while the state changes, and by code that adds what depends on the state.
        self.lock = RLock()
        self._pending: list[_Pending] = []
        self._blobs: list[tuple[int, bytes]] = []
        self._adds = 0
        self._listeners: list[Listener] = []
        self._unheard: deque[tuple[Known, Known]] = deque()
        self._notifying = Lock()
        # Pending events that no decision of a person may come before.
        self._undecided: frozenset[str] = frozenset()
        self._changes = len(self.declarations.changes)
        if known is None:
            known = self.folded(ledger.head(run_id) if at is None else at)
        self._committed = self._known = known

    # --- state ---

    @property
    def known(self) -> Known:
        """The state with what is pending."""
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
        """The state of what is on disk."""
        with self.lock:
            self._catch_up()
            return self._committed

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def is_pending(self, event_id: str) -> bool:
        """Whether the event that was added under this id is not on disk yet."""
        return any(one.entry.event_id == event_id for one in self._pending)

    def pending_records(self) -> list[Record]:
        """What is pending, as it will be but for the store's time, position and digest."""
        with self.lock:
            self._catch_up()
            return [one.record for one in self._pending]

    def records(self) -> Iterator[Record]:
        """All records from the first on, pending ones last."""
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
        """The state at a version that is on disk, and some records later."""
        return Known.initial(self.declarations).after(chain(self._read(until), more))

    def refold(self) -> None:
        """Fold everything again: the program's declarations have changed."""
        with self.lock:
            changes = len(self.declarations.changes)
            self._rebase(self.folded(self._committed.version))
            self._changes = changes

    def refresh(self) -> None:
        """Fold what others have appended since: comments, and decisions.

        EventDecodeError if that has a tag or a field that this program does not know.
        """
        with self.lock:
            version = self._committed.version
            tail = self.ledger.read_known(self.run_id, after=version) if version else []
            if tail:
                self._rebase(self._committed.after(tail))

    def _catch_up(self) -> None:
        changes = self.declarations.changes
        count = len(changes)
        if self._changes == count:
            return
        if self._known.is_outdated(changes[self._changes :]):
            committed = self._committed.redeclared(self.declarations, self._changes)
            if committed is None:
                self.refold()
                return
            self._rebase(committed)
        self._changes = count

    def _read(self, until: int) -> Iterable[Record]:
        return self.ledger.read(self.run_id, until=until) if until else ()

    def check_claim(self) -> None:
        """StaleEpochError if another worker has the run: before an effect, not only after it."""
        if self.claim is not None and self.is_lost():
            raise StaleEpochError(
                str(self.run_id), epoch=self.claim.epoch, found=self.ledger.run(self.run_id).epoch
            )

    # --- adding events ---

    def new_evaluation_id(self) -> str:
        """The id of the evaluation that is begun next."""
        return self.clock.new_id()

    def recorded_prompt(self) -> RecordedPrompt | None:
        """The prompt of the evaluation that is begun next, if it is on record: in a replay."""
        return None

    def add(self, *events: Addition, blobs: Iterable[bytes] = ()) -> list[str]:
        """Make these pending, all or none, and give their ids.

        InvalidEventError if one can't be recorded; what a reducer raises passes.
        """
        kept = list(blobs)
        with self.lock:
            # Nothing of the journal changes before all of them are encoded and folded.
            known, added = self.known, list[_Pending]()
            for event in events:
                if isinstance(event, Changes):
                    known = self._take_over(known, event, added)
                    continue
                factory = event if callable(event) else None
                entry = self.prepare(event(known) if callable(event) else event)
                one = _Pending(entry, self.provisional(known, entry), self._adds, factory)
                known = known.after([one.record])
                added.append(one)
            self._known = known
            self._pending += added
            self._blobs += [(self._adds, content) for content in kept]
            self._adds += 1
            return [one.entry.event_id for one in added]

    def _take_over(self, known: Known, changes: Changes, added: list[_Pending]) -> Known:
        if known is changes.before:
            records: Iterable[Record] = changes.records
            known = changes.after
        else:
            # Another tool's result came first: the versions are others, and so may the state be.
            records, known = self.folded_on(known, changes.entries)
        for entry, record in zip(changes.entries, records, strict=True):
            added.append(_Pending(entry, record, self._adds))
        return known

    def folded_on(self, known: Known, entries: Iterable[Entry]) -> tuple[list[Record], Known]:
        """Provisional records of these on top of a state, and the state with them."""
        records = list[Record]()
        for entry in entries:
            records.append(self.provisional(known, entry))
            known = known.after(records[-1:])
        return records, known

    def discard(self) -> None:
        """Drop what is pending."""
        with self.lock:
            self._pending, self._blobs = [], []
            self._known = self._committed

    def commit_outcomes(self) -> None:
        """Commit up to the last tool outcome that is pending; what comes after it stays pending.

        For an interrupt: a tool that ended is recorded as ended.
        """
        with self.lock:
            pending, blobs = self._pending, self._blobs
            ended = [one.group for one in pending if one.entry.tag in _OUTCOMES]
            if not ended:
                return
            self._pending = [one for one in pending if one.group <= ended[-1]]
            try:
                self.write()
            finally:
                self._blobs = [one for one in blobs if one[0] > ended[-1]]
                later = [one for one in pending if one.group > ended[-1]]
                self._rebase(self._committed, [*self._pending, *later])

    def withdraw(self, event_ids: Iterable[str]) -> None:
        """Drop those of these that are pending."""
        with self.lock:
            gone = frozenset(event_ids)
            left = [one for one in self._pending if one.entry.event_id not in gone]
            if len(left) < len(self._pending):
                self._rebase(self._committed, left)

    def prepare(self, event: Event) -> Entry:
        """The event under a new id, checked and encoded."""
        return self.ledger.prepare(Draft(event, self.clock.new_id()))

    def provisional(self, known: Known, entry: Entry) -> Record:
        """The record that follows a state, but for the store's time, position and digest."""
        version, micros = known.version + 1, self.clock.micros()
        return provisional_record(self.ledger, self.run_id, version, entry, micros)

    def _rebase(self, committed: Known, pending: Iterable[_Pending] | None = None) -> None:
        """Put what is pending on top of another state.

        An event with a factory is made again, as it says something about the state before it.
        The others keep their bytes and ids. If a reducer raises, nothing has changed.
        """
        known, moved = committed, list[_Pending]()
        for one in self._pending if pending is None else pending:
            entry = one.entry
            if one.factory is not None:
                entry = self.ledger.prepare(Draft(one.factory(known), entry.event_id))
            record = self.provisional(known, entry)
            known = known.after([record])
            moved.append(one._replace(entry=entry, record=record))
        self._committed, self._known, self._pending = committed, known, moved

    # --- committing ---

    def commit(self) -> None:
        """Append what is pending; it is on disk when this returns, and listeners are told."""
        self.write()
        self.tell()

    def commit_unless_decided(self, event_ids: Iterable[str]) -> bool:
        """Commit, unless a person decided about a call since the state that led to these events.

        Then these are withdrawn and it returns False: what comes next is to be decided again, with
        the decision. What else is pending stays so.

        Args:
            event_ids: Of pending events, such as the start of a call.
        """
        ids = frozenset(event_ids)
        with self.lock:
            self._undecided = ids
            try:
                self.write()
            except _DecidedMeanwhile:
                self.withdraw(ids)
                return False
            finally:
                self._undecided = frozenset()
        self.tell()
        return True

    def on_commit(self, listener: Listener) -> Callable[[], None]:
        """Call this after each commit. Returns a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def write(self) -> None:
        """Append what is pending; listeners are not told yet."""
        with self.lock:
            before = self.committed
            try:
                while self._pending:
                    records = self._append(self._first_batch())
                    # Folded again: only now are times, positions and digests known.
                    self._committed = self._committed.after(records)
                    if self.checkpoint_interval:
                        # Digests are worked out from the last that is known: keep it close.
                        self._committed.run.state_digest  # noqa: B018
                    del self._pending[: len(records)]
                    self.commits += 1
                self._blobs = []
                # The same events with the store's times take the place of the provisional ones.
                self._known = self._committed
            finally:
                if self._committed is not before:
                    self._unheard.append((before, self._committed))

    def tell(self) -> None:
        """Call listeners, one commit after the other.

        A listener may commit: its own call finds the lock taken, and the loop that is under
        way tells of that commit after all listeners have heard of this one.
        """
        while self._unheard and self._notifying.acquire(blocking=False):
            try:
                while self._unheard:
                    before, now = self._unheard.popleft()
                    for listener in tuple(self._listeners):
                        listener(before, now)
            finally:
                self._notifying.release()

    def _first_batch(self) -> int:
        """How many of the pending events go together: whole adds, as many as may."""
        most = self.ledger.limits.max_batch_events
        if len(self._pending) <= most:
            return len(self._pending)
        count = most
        while count and self._pending[count - 1].group == self._pending[count].group:
            count -= 1
        # One add that is larger than a batch has to be split.
        return count or most

    def _append(self, count: int) -> tuple[Record, ...]:
        last = self._pending[count - 1].group
        blobs = [content for group, content in self._blobs if group <= last]
        for attempt in range(1, ATTEMPTS + 1):
            version = self._committed.version
            try:
                # Runs that wait for the disk together share one flush of it.
                with at_the_disk():
                    return self.ledger.append(
                        self.run_id,
                        [one.entry for one in self._pending[:count]],
                        expected_version=version or NEW,
                        epoch=self.claim.epoch if self.claim is not None else None,
                        blobs=blobs,
                    ).records
            except ConcurrentAppendError:
                # Others may comment on a claimed run and decide about calls in doubt: what is
                # pending goes on top of that, and keeps its ids.
                tail = self.ledger.read_known(self.run_id, after=version)
                if attempt == ATTEMPTS or not tail:
                    raise
                self._rebase(self._committed.after(tail))
                if any(record.tag in _DECISIONS for record in tail) and any(
                    one.entry.event_id in self._undecided for one in self._pending
                ):
                    raise _DecidedMeanwhile from None
            except StoreUnavailableError:
                # It may have been written. The same ids with the same bytes are safe to append
                # again: the ledger answers with the first recording.
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("unreachable")
