"""The journal of a replay: compares each event that the loop adds with the recorded one.

Nothing is written. An event that equals the recorded one, apart from ids and times, is replaced
by it: the state is folded from the recorded events, so that ids, times and digests are the
recorded ones and everything that follows can be compared too. The first event that differs is a
divergence, and ends the replay.

Three kinds of records are not compared:

- inputs from outside (`cursor.inputs`), which the loop never decides;
- what a tool or the model did, which the effects take from the record (`replaying.effects`);
- how often the state was kept, and what listeners wrote into the session, which may differ
  without the run having done anything else.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, count
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
    OutputRejected,
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
from turnledger.ledger.events.types import CATALOGUE, as_of, undescribed
from turnledger.projections import Declarations
from turnledger.projections.projection import tags_of
from turnledger.runtime.agent.prompts.override_texts import RecordedPrompt
from turnledger.runtime.journal.journal import Addition, Changes, Factory, Journal, Listener
from turnledger.runtime.journal.known import Known
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.replaying.cursor import RecordCursor
from turnledger.runtime.replaying.divergence import Cause, Divergence
from turnledger.runtime.replaying.divergence_cause import Probe, find_divergence
from turnledger.runtime.replaying.user_code import raised_by_user

EventT = TypeVar("EventT", bound=Event)


class Stop(BaseException):
    """Ends a replay from within the loop.

    Not an Exception: the loop and the user's code handle those, and would record a failure.
    """


class AttemptOver(Stop):
    """The process that was recorded ended here; another attempt follows, or none."""


class RecordOver(Stop):
    """There are no more records: the run was followed to its end."""


class Diverged(Stop):
    """The loop did something else than was recorded."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence.summary)
        self.divergence = divergence


@dataclass(frozen=True)
class TakenCall:
    """A recorded call of a model, or the beginning of an evaluation, which names no model."""

    version: int
    tag: str
    adapter: str
    model: str

    @classmethod
    def of(cls, record: Record) -> TakenCall:
        """The call that a record is about."""
        event = record.event
        model = event.model if isinstance(event, ModelCalled) else ""
        return cls(record.version, record.tag, getattr(event, "adapter", ""), model)


class ReplayJournal(Journal, ABC):
    """A `Journal` that compares instead of writing."""

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
        # The event catalogue of the program that wrote the records; 0 is one before 2. It can
        # change within a run: each attempt names its own.
        self.catalogue = 0
        # Calls of earlier attempts under another adapter or model, which were not compared.
        self.taken_calls: list[TakenCall] = []
        # Evaluations whose prompt was taken from the record, since its overrides are others now.
        self.recorded_prompts: dict[str, None] = {}
        # The evaluation that is under way, for finding causes.
        self.evaluation: EvaluationContext[Any] | None = None
        # Whether the loop's own events have begun. Before that, a change of the session is one
        # of create_session's and is compared; after it, one outside of tools is a listener's.
        self._loop_began = False
        # Records that were taken and not folded yet. Folding a page at a time is much cheaper
        # than one record at a time, and most steps of a replay do not look at the state.
        self._unfolded: list[Record] = []

    @property
    @abstractmethod
    def probe(self) -> Probe:
        """What finds the cause of a divergence may ask."""

    # --- the state: always that of the record ---

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
                self._fold_one_by_one(taken)

    def _fold_one_by_one(self, records: Iterable[Record]) -> None:
        """Fold up to the record that can't be folded, which is the divergence."""
        for record in records:
            try:
                self._known = self._committed = self._known.after([record])
            except TurnledgerError as error:
                raised = raised_by_user(error, self.ledger.redact_text)
                raise Diverged(Divergence.of_a_fold(record, error, raised)) from error

    def last_known(self) -> Known:
        """The state after all that was followed, or after the part of it that can be folded."""
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
        """Nothing to do: the record does not grow."""

    # --- adding is comparing ---

    def new_evaluation_id(self) -> str:
        """The recorded id, so that all that names it can be compared as it is."""
        record = self.cursor.later(EvaluationStarted)
        event = record.event if record is not None else None
        return event.evaluation_id if isinstance(event, EvaluationStarted) else self.clock.new_id()

    def recorded_prompt(self) -> RecordedPrompt | None:
        """The prompt of the next evaluation; its text is the message right after its start."""
        started = self.cursor.later(EvaluationStarted)
        if started is None or not isinstance(started.event, EvaluationStarted):
            return None
        place = next(n for n in count() if self.cursor.peek(n) is started)
        message = self.cursor.peek(place + 1)
        is_text = message is not None and isinstance(message.event, MessageAppended)
        text = message.event.message.content if is_text else ""  # type: ignore[union-attr]
        return RecordedPrompt.of(started.event, text)

    def add(self, *events: Addition, blobs: Iterable[bytes] = ()) -> list[str]:
        with self.lock:
            return [self._compare(event) for given in events for event in _each(given)]

    def discard(self) -> None:
        """Nothing is ever pending."""

    def withdraw(self, event_ids: Iterable[str]) -> None:
        """Nothing is ever pending."""

    def commit_outcomes(self) -> None:
        """Nothing is ever pending."""

    def write(self) -> None:
        """Nothing to do: what was added is on record already."""

    def tell(self) -> None:
        """Nothing to do: listeners heard of it when the run was live."""

    def on_commit(self, listener: Listener) -> Callable[[], None]:
        return lambda: None

    def expected(self) -> Record:
        """The loop's next step, as recorded. Raises a `Stop` if the attempt or the record ends."""
        self.take_inputs()
        record = self.cursor.peek()
        if record is None:
            raise RecordOver
        if self.cursor.ends_an_attempt():
            raise AttemptOver
        return record

    def take(self) -> Record:
        """Take the next record as it is: it becomes part of the state."""
        record = self.cursor.take()
        if not self._loop_began:
            self._loop_began = record.tag in _BEGINNINGS
        if record.tag in _BY_A_WRITER:
            event = record.event
            assert isinstance(event, RunStarted | RunResumed)
            self.catalogue = event.catalogue
        self._unfolded.append(record)
        return record

    def take_listeners_changes(self) -> None:
        """Take changes of the session that listeners made: they are not steps of the loop."""
        while isinstance(event := self.expected().event, SliceEventApplied):
            if event.call_id is not None:
                return
            self.take()

    def take_inputs(self) -> None:
        """Take what came from outside before the loop's next step."""
        self._unfolded += self.cursor.inputs()

    def _compare(self, event: Event | Factory) -> str:
        """Compare an event with the next recorded step and take that; its id, or "" if skipped.

        An event of another type is not a divergence yet. A replay may make checkpoints where the
        run had none, or none where it had some (`checkpoint_interval` may have changed), and
        listeners are not called in a replay: what they recorded is skipped.
        """
        record = self.expected()
        made: Event = event(self.known) if callable(event) else event
        while not isinstance(record.event, type(made)):
            if isinstance(made, _CHECKPOINTS):
                return ""
            # A change or a failure of the loop's own never stands behind what can be skipped.
            if isinstance(made, SliceEventApplied | RunFailed) or not self._is_skipped(record):
                break
            self.take()
            record = self.expected()
            # What is made of the state is made again: taking a record changed the state.
            made = event(self.known) if callable(event) else event
        recorded = record.event
        made = self._as_its_writer(made, recorded)
        by_another = type(made) is type(recorded) and self._by_another(record)
        if by_another:
            made = _as_called_then(made, recorded)
        # The cheap comparisons first; the last one, of bytes, is the one that counts: numbers
        # and text can be spelled in more than one way until they are encoded and redacted.
        if made != recorded and not _are_alike(made, recorded):
            encode = self.ledger.codec.encode
            if encode(without_ids_and_times(made)) != encode(without_ids_and_times(recorded)):
                shown = self.ledger.redact(made)  # as it would have been recorded
                divergence = find_divergence(self.probe, record, shown)
                if isinstance(made, RunFailed) and divergence.cause == "failure changed":
                    self.raise_if_users(sys.exc_info()[1], divergence.found)
                raise Diverged(divergence)
        if by_another:
            self.taken_calls.append(TakenCall.of(record))
        self.take()
        return record.row.event_id

    def _by_another(self, record: Record) -> bool:
        """Whether this is a call of an earlier attempt under another adapter or model.

        That is so if this adapter and model are those of the run's last call, and the run was
        resumed in between: a run may be recovered by another provider.
        """
        call, context = TakenCall.of(record), self.evaluation
        if context is None or record.tag not in _CALLS:
            return False
        own = (context.adapter.name, context.adapter.model)
        if call.adapter == own[0] and (record.tag != ModelCalled.tag or call.model == own[1]):
            return False
        resumed_at, last = self.last_call
        return (
            record.version < resumed_at and last is not None and (last.adapter, last.model) == own
        )

    @cached_property
    def last_call(self) -> tuple[int, TakenCall | None]:
        """The run's last call of a model, and the version at which it was resumed before that.

        Of the whole run, also where a replay ends at an earlier version.
        """
        resumed_at = 0
        found: tuple[int, TakenCall | None] = (0, None)
        for record in self.ledger.read(self.run_id):
            if record.tag == RunResumed.tag:
                resumed_at = record.version
            elif record.tag == ModelCalled.tag:
                found = (resumed_at, TakenCall.of(record))
        return found

    def raise_if_users(self, error: BaseException | None, found: Any) -> None:
        """Diverge at the next record if the user's code raised this error.

        Args:
            error: The error that ends the run.
            found: What would be recorded of it.
        """
        raised, record = raised_by_user(error, self.ledger.redact_text), self.cursor.peek()
        if raised is not None and record is not None:
            raise Diverged(Divergence.of_users_code(record, found, raised)) from error

    def _as_its_writer(self, made: Event, recorded: Event) -> Event:
        """The event as the program that wrote the record would have made it.

        An older program did not know newer fields, and may have worded errors in another way:
        what failed is then compared by type, phase and cause.
        """
        if self.catalogue >= CATALOGUE:
            return made
        if isinstance(made, RunFailed) and isinstance(recorded, RunFailed):
            made = replace(made, error_message=recorded.error_message)
        return as_of(made, self.catalogue)

    def _is_skipped(self, record: Record) -> bool:
        """Whether this is not a step of the loop: a listener's change, or a checkpoint.

        The state that a checkpoint names is compared all the same.
        """
        event = record.event
        if isinstance(event, CheckpointReached):
            known = self.known.run
            made = replace(event, state_digest=known.state_digest)
            if made != event:
                raise Diverged(find_divergence(self.probe, record, made))
            return True
        if isinstance(event, SliceEventApplied):
            return event.call_id is None and self._loop_began
        return isinstance(event, CheckpointCleared)

    def check_state(self, phase: str, done: int) -> None:
        """Compare the state with a checkpoint that the loop would make here.

        The rest of a checkpoint follows from the state: its outcome digest is not computed again.
        """
        record = self.expected()
        event = record.event
        if not isinstance(event, CheckpointReached):
            return  # how often the state is kept may differ
        made = replace(
            event,
            phase=phase,
            tool_calls_completed=done,
            state_digest=self.known.run.state_digest,
        )
        if made != event:
            raise Diverged(find_divergence(self.probe, record, made))
        self.take()

    def diverged(self, found: str, cause: Cause = "decision changed") -> NoReturn:
        """The recorded step is not one that can follow here; `found` says what was expected."""
        raise Diverged(Divergence.of_a_step(self.expected(), found, cause))


def _each(given: Addition) -> tuple[Event | Factory, ...]:
    return given.events if isinstance(given, Changes) else (given,)


def _as_called_then(made: Event, recorded: Event) -> Event:
    """The event with the recorded adapter, model and request digest; all else is compared."""
    if isinstance(made, ModelCalled) and isinstance(recorded, ModelCalled):
        return replace(
            made,
            adapter=recorded.adapter,
            model=recorded.model,
            request_digest=recorded.request_digest,
        )
    if isinstance(made, EvaluationStarted) and isinstance(recorded, EvaluationStarted):
        return replace(made, adapter=recorded.adapter)
    return made


_CHECKPOINTS = (CheckpointReached, CheckpointCleared)
# These name the catalogue of the program that writes what follows.
_BY_A_WRITER = tags_of(RunStarted, RunResumed)
_CALLS = tags_of(EvaluationStarted, ModelCalled)
# The loop's own events begin with one of these.
_BEGINNINGS = tags_of(CheckpointReached, EvaluationStarted, ModelCalled)


def _are_alike(made: Event, recorded: Event) -> bool:
    return type(made) is type(recorded) and without_ids_and_times(made) == without_ids_and_times(
        recorded
    )


_NO_ID = UUID(int=0)
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def without_ids_and_times(event: EventT) -> EventT:
    """The event without the ids and times that every execution makes for itself.

    Fields that only describe it are left out as well: see `since`.
    """
    event = undescribed(event)
    match event:
        case MessageAppended():
            return replace(
                event, message=replace(event.message, message_id=_NO_ID, created_at=_NO_TIME)
            )
        case ModelReplied() | ToolCallCompleted() | ToolCallFailed():
            return replace(event, message_id=_NO_ID)
        case OutputRejected():
            return replace(event, message_id=None, asked_id=_NO_ID)
        case CheckpointReached():
            return replace(event, created_at=_NO_TIME)
        case _:
            return event
