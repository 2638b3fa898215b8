"""The journal of a loop that is run again: what it adds is compared with what was recorded.

Nothing is written. An event that says the same as the recorded one stands for it, and what is
known then comes from the record: ids and times are the recorded ones. The first that says
something else is a divergence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from msgspec.structs import replace

from turnledger.ledger import (
    CheckpointCleared,
    CheckpointReached,
    Clock,
    EvaluationStarted,
    Event,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelReplied,
    Record,
    RunFailed,
    RunResumed,
    RunStarted,
    SliceEventApplied,
    SystemClock,
    ToolCallCompleted,
    ToolCallFailed,
    TurnledgerError,
)
from turnledger.ledger.events.types import as_of
from turnledger.projections import Declarations
from turnledger.projections.projection import tags_of
from turnledger.runtime.journal.journal import (
    Addition,
    Changes,
    Factory,
    Journal,
    Known,
    Listener,
)
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.replaying.cursor import RecordCursor
from turnledger.runtime.replaying.divergence import Cause, Divergence
from turnledger.runtime.replaying.divergence_cause import Probe, find_divergence

EventT = TypeVar("EventT", bound=Event)


class Stop(BaseException):
    """The loop is not to go on."""


class AttemptOver(Stop):
    """The record says that the process ended here; another attempt follows."""


class RecordOver(Stop):
    """The record ends here."""


class Diverged(Stop):
    """The loop did something else than what was recorded."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence.summary)
        self.divergence = divergence


class ReplayJournal(Journal, ABC):
    """A run as a loop that is run again has it."""

    def __init__(
        self,
        ledger: Ledger,
        run_id: UUID,
        cursor: RecordCursor,
        declarations: Declarations,
        *,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            ledger, run_id, declarations=declarations, clock=clock or SystemClock(), at=0
        )
        self.cursor = cursor
        # The event catalogue of the program that wrote what is read; 0 is one before 2.
        self.catalogue = 0
        # The one that is under way.
        self.evaluation: EvaluationContext[Any] | None = None
        # Whether the loop has begun: what the session brings along comes before.
        self._has_opened = False
        self._unfolded: list[Record] = []

    @property
    @abstractmethod
    def probe(self) -> Probe:
        """Whom to ask for causes."""

    # --- what is known ---

    @property
    def known(self) -> Known:
        with self.lock:
            self._fold()
            self._catch_up()
            return self._known

    @property
    def committed(self) -> Known:
        return self.known

    def _fold(self) -> None:
        if self._unfolded:
            taken, self._unfolded = self._unfolded, []
            try:
                self._known = self._committed = self._known.after(taken)
            except TurnledgerError:
                self._fold_to_the_trouble(taken)

    def _fold_to_the_trouble(self, records: Iterable[Record]) -> None:
        for record in records:
            try:
                self._known = self._committed = self._known.after([record])
            except TurnledgerError as error:
                raise Diverged(Divergence.of_a_fold(record, error)) from error

    def last_known(self) -> Known:
        """What is known of all that was followed, or of the part of it that can be folded."""
        with suppress(Diverged):
            self._fold()
        return self._known

    def pending_records(self) -> list[Record]:
        return []

    def records(self) -> Iterator[Record]:
        return chain(self._read(self.known.version))

    def refold(self) -> None:
        with self.lock:
            changes = len(self.declarations.changes)
            self._known = self._committed = self.folded(self._known.version)
            self._changes = changes

    def refresh(self) -> None:
        """Nobody else adds anything here."""

    # --- what is compared ---

    def new_evaluation_id(self) -> str:
        record = self.cursor.later(EvaluationStarted)
        event = record.event if record is not None else None
        return event.evaluation_id if isinstance(event, EvaluationStarted) else self.clock.new_id()

    def add(self, *events: Addition, blobs: Iterable[bytes] = ()) -> list[str]:
        with self.lock:
            return [self._compare(event) for given in events for event in _each(given)]

    def discard(self) -> None:
        """There is nothing pending."""

    def withdraw(self, event_ids: Iterable[str]) -> None:
        """There is nothing pending."""

    def write(self) -> None:
        """What was added is on record already."""

    def tell(self) -> None:
        """Listeners have heard of it when it happened."""

    def on_commit(self, listener: Listener) -> Callable[[], None]:
        return lambda: None

    def expected(self) -> Record:
        """What the loop did next, as recorded. It ends the attempt if it did nothing more."""
        self.take_inputs()
        record = self.cursor.peek()
        if record is None:
            raise RecordOver
        if self.cursor.ends_an_attempt():
            raise AttemptOver
        return record

    def take(self) -> Record:
        """Take the next record as it is."""
        record = self.cursor.take()
        if not self._has_opened:
            self._has_opened = record.tag in _OPENED
        if record.tag in _BY_A_WRITER:
            event = record.event
            assert isinstance(event, RunStarted | RunResumed)
            self.catalogue = event.catalogue
        self._unfolded.append(record)
        return record

    def take_notes(self) -> None:
        """Take what listeners noted in the session, which is no step of the loop."""
        while isinstance(event := self.expected().event, SliceEventApplied):
            if event.call_id is not None:
                return
            self.take()

    def take_inputs(self) -> None:
        self._unfolded += self.cursor.inputs()

    def _compare(self, event: Event | Factory) -> str:
        record = self.expected()
        made: Event = event(self.known) if callable(event) else event
        while not isinstance(record.event, type(made)):
            if isinstance(made, _KEPT):
                return ""  # how often the state is kept is no step
            if isinstance(made, SliceEventApplied | RunFailed) or not self._is_beside(record):
                break
            self.take()
            record = self.expected()
            made = event(self.known) if callable(event) else event
        recorded = record.event
        made = as_of(made, self.catalogue)  # what its writer did not know, is not compared
        if made != recorded and not _says_the_same(made, recorded):
            encode = self.ledger.codec.encode
            if encode(without_marks(made)) != encode(without_marks(recorded)):
                shown = self.ledger.redact(made)  # as it would have been recorded
                raise Diverged(find_divergence(self.probe, record, shown))
        self.take()
        return record.row.event_id

    def _is_beside(self, record: Record) -> bool:
        """Whether this is no step of the loop: a note of a listener, or how the state was kept."""
        event = record.event
        if isinstance(event, CheckpointReached):
            known = self.known.run
            made = replace(event, state_digest=known.state_digest)
            if made != event:
                raise Diverged(find_divergence(self.probe, record, made))
            return True
        if isinstance(event, SliceEventApplied):
            return event.call_id is None and self._has_opened
        return isinstance(event, CheckpointCleared)

    def check_state(self, phase: str, done: int) -> None:
        """The loop makes a checkpoint here: the state is the recorded one.

        What else a checkpoint says follows from the state, and is not worked out again.
        """
        record = self.expected()
        event = record.event
        if not isinstance(event, CheckpointReached):
            return  # how often the state is kept is no step
        made = replace(
            event,
            phase=phase,
            tool_calls_completed=done,
            state_digest=self.known.run.state_digest,
        )
        if made != event:
            raise Diverged(find_divergence(self.probe, record, made))
        self.take()

    def undecided(self, found: str, cause: Cause = "decision changed") -> NoReturn:
        """The loop can't go on where the record does."""
        raise Diverged(Divergence.of_a_step(self.expected(), found, cause))


def _each(given: Addition) -> tuple[Event | Factory, ...]:
    return given.events if isinstance(given, Changes) else (given,)


_KEPT = (CheckpointReached, CheckpointCleared)
# These name the program that writes what follows.
_BY_A_WRITER = tags_of(RunStarted, RunResumed)
_OPENED = tags_of(CheckpointReached, EvaluationStarted, ModelCalled)


def _says_the_same(made: Event, recorded: Event) -> bool:
    return type(made) is type(recorded) and without_marks(made) == without_marks(recorded)


_NO_ID = UUID(int=0)
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def without_marks(event: EventT) -> EventT:
    """The event without the ids and times that are made anew each time."""
    match event:
        case MessageAppended():
            return replace(
                event, message=replace(event.message, message_id=_NO_ID, created_at=_NO_TIME)
            )
        case ModelReplied() | ToolCallCompleted() | ToolCallFailed():
            return replace(event, message_id=_NO_ID)
        case CheckpointReached():
            return replace(event, created_at=_NO_TIME)
        case _:
            return event
