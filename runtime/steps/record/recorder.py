"""`StepRecorder`: what comes before and after each step of one run.

Before a step its start is on disk, after it its outcome; what a run has recorded is answered from
the record, and a replay performs nothing. None of it awaits anything: the synchronous and the
asynchronous driver (`runtime.steps.scope`) call the same functions, the latter in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, NoReturn, Protocol, TypeAlias
from uuid import UUID

from turnledger.ledger import (
    Event,
    InvalidInputError,
    Ledger,
    Record,
    RunWaiting,
    StoreUnavailableError,
)
from turnledger.ledger.errors import error_message
from turnledger.ledger.runs.append import Entry
from turnledger.projections import RunState
from turnledger.runtime.errors import DecisionRequiredError
from turnledger.runtime.journal.tool_scope import Strand, is_strand, strand
from turnledger.runtime.replaying.divergence import Divergence
from turnledger.runtime.replaying.replay import ReplayDivergedError
from turnledger.runtime.steps.errors import (
    AmbiguousStepError,
    DecidedValueError,
    RecordEndedError,
)
from turnledger.runtime.steps.record import divergence as diverging
from turnledger.runtime.steps.record.index import StepEntry, StepIndex, StepOutcome
from turnledger.runtime.steps.record.open_step import LeftStep, OpenStep, OpenStream
from turnledger.runtime.steps.record.step_events import (
    WAITS,
    Reserved,
    completed,
    failed,
    in_doubt,
    started,
)
from turnledger.runtime.steps.spec import (
    StepSpec,
    arguments_text,
    checked_name,
    digest_of,
    step_id,
)

# Of two policies the more careful one holds.
_CAREFUL = ("", "retry", "fail", "ask")
UNKNOWN_OUTCOME = "OutcomeUnknown"
DECIDED_FAILED = "DecidedFailed"
# Performs steps; answers from the record of a run that has ended; replays.
Mode: TypeAlias = Literal["live", "ended", "replay"]


class Appending(Protocol):
    """Appends to the run under its claim; on disk when it returns."""

    def __call__(
        self, events: Sequence[Event | Entry], blobs: Iterable[bytes] = ()
    ) -> Sequence[Record]: ...


@dataclass(frozen=True)
class Place:
    """Where a step is asked for: the step or call that it is in, and whether in its own thread."""

    parent: str = ""
    strand: Strand | None = None
    # Of a tool's handler, the id of its call.
    call: str = ""


class StepRecorder:
    """The steps of one run, as the code asks for them."""

    def __init__(
        self,
        ledger: Ledger,
        run_id: UUID,
        index: StepIndex,
        append: Appending,
        *,
        mode: Mode = "live",
        check_claim: Callable[[], object] = bool,
    ) -> None:
        """Go by a run's record.

        Args:
            ledger: Where the run is.
            run_id: The run.
            index: Its steps so far.
            append: Appends to it.
            mode: Whether steps are performed.
            check_claim: StaleEpochError if another worker has the run by now.
        """
        self.ledger, self.run_id, self.index, self.mode = ledger, run_id, index, mode
        self._append, self._check_claim = append, check_claim
        self._lock = Lock()
        # By parent and name.
        self._ordinals: dict[str, dict[str, int]] = {}
        # Steps that are asked for now, by id; and how many without a key by parent and name.
        self._open: set[str] = set()
        self._keyless: set[tuple[str, str]] = set()
        self._keyless_ids: dict[str, tuple[str, str]] = {}
        # Of an agent's run: the number of the first call of each id, and how many were looked at.
        self._first_calls: dict[str, int] = {}
        self._calls = 0
        # Why the run goes no further in this process, and the steps whose code was told so.
        self.halted: Exception | None = None
        self._told: set[str] = set()
        # Streams that are not at their end, by the ids of their steps.
        self.streams: dict[str, OpenStream] = {}
        # For integrations: what they remember of the run in this process.
        self.memory: dict[str, Any] = {}

    @property
    def open_steps(self) -> tuple[str, ...]:
        """The steps that are under way, inner ones too."""
        with self._lock:
            return tuple(sorted(self._open))

    def path_of_call(self, call_id: str, number: int, state: RunState) -> str:
        """What the ids of steps in a tool call begin with: its id, with its number if it repeats.

        Args:
            call_id: The call's id, as the model gave it.
            number: Its place among the calls of the run.
            state: The run.
        """
        calls = state.tools.calls
        with self._lock:
            for place in range(self._calls, len(calls)):
                call = calls[place]
                if not call.is_step:
                    self._first_calls.setdefault(call.call_id, call.number)
            self._calls = max(self._calls, len(calls))
            first = self._first_calls.get(call_id, number)
        return call_id if number == first else f"{call_id}%{number}"

    # --- before ---

    def reserve(self, spec: StepSpec, place: Place) -> Reserved:
        """Give a step its id; nothing is read or written.

        Raises:
            AmbiguousStepError: Another step has that id, or could have.
            InvalidInputError: Its name, key or arguments can't be recorded.
        """
        parent = place.parent
        try:
            self.check()
        except Exception as error:
            self.stop(error, parent)
            raise
        name = checked_name(spec, self.ledger)
        arguments = arguments_text(spec, self.ledger)
        same = (parent, name)
        with self._lock:
            ordinals = self._ordinals.setdefault(parent, {})
            ordinal = ordinals.get(name, 0) + 1
            call_id = step_id(parent, name, spec.key, ordinal)
            if spec.key is None and same in self._keyless:
                raise AmbiguousStepError(
                    call_id,
                    "another step of that name is open here, and which of them comes first is "
                    "left to chance. Give each a key: @step(key=...), or run.step(..., key=...).",
                )
            if call_id in self._open:
                raise AmbiguousStepError(
                    call_id, "it is open already, and a key names one step. Use another key."
                )
            if spec.key is None:
                ordinals[name] = ordinal
                self._keyless.add(same)
                self._keyless_ids[call_id] = same
            self._open.add(call_id)
        aside = not is_strand(place.strand)
        self._goes_on(call_id, parent, aside=aside)
        return Reserved(spec, call_id, parent, arguments, digest_of(arguments), aside, place.call)

    def _goes_on(self, call_id: str, parent: str, *, aside: bool) -> None:
        """The code of a step goes on: what it has left behind has ended, but for what it retries.

        Args:
            call_id: The step that it asks for.
            parent: The step that it is the code of.
            aside: Whether it is beside the step's own thread or task.
        """
        for one in list(self.streams.values()):
            if not isinstance(one, LeftStep) or one.parent != parent:
                continue
            if one.call_id == call_id:
                one.abandon()
            elif not aside or one.strand == strand():
                one.is_left = True

    def begin(self, reserved: Reserved, events: Iterable[Event] = ()) -> StepOutcome | OpenStep:
        """The recorded outcome of a step, or the step itself, its start on disk.

        Args:
            reserved: The step.
            events: Recorded before its start, in the same commit.
        """
        try:
            begun = self._begin(reserved, list(events))
        except BaseException:
            self.closed(reserved.call_id)
            if self.halted is not None:
                self.stop(self.halted, reserved.parent)
            raise
        if isinstance(begun, StepOutcome):
            self.closed(reserved.call_id)
        return begun

    def _begin(self, reserved: Reserved, events: list[Event]) -> StepOutcome | OpenStep:
        self.check()
        self.settle_streams()
        entry = self.index.entries.get(reserved.call_id)
        if entry is not None and entry.digest != reserved.digest:
            if entry.asked:
                raise AmbiguousStepError(
                    reserved.call_id,
                    "it was asked for with other arguments, and a key names one step. Use another "
                    "key.",
                )
            found, client = self._found(reserved), reserved.spec.client
            raise self.halt(diverging.changed_arguments(self.index.whole(entry), found, client))
        self._check_place(reserved, entry)
        if entry is None:
            return self._new(reserved, events)
        entry.asked = True
        if entry.outcome is not None:
            if not (reserved.spec.again and entry.performed and entry.outcome.failed):
                return entry.outcome
            return self._start(reserved, entry.attempts + 1, events)
        if self.mode != "live":
            error = RecordEndedError(str(self.run_id), self.index.version, entry.call_id)
            raise self._halt_with(error)
        return self._again(reserved, entry, events)

    def _check_place(self, reserved: Reserved, entry: StepEntry | None) -> None:
        """Refuse a step that is not the recorded one, before anything of it is performed.

        Only of the steps in their parent's own thread or task is the order known.
        """
        if reserved.aside or (entry is not None and (entry.asked or entry.aside)):
            return
        following = self.index.next_expected(reserved.parent)
        if following is None or following is entry:
            return
        if entry is not None:
            raise self.halt(diverging.other_order(following, reserved.call_id))
        found = self._found(reserved)
        spec = reserved.spec
        expected = self.index.whole(following)
        raise self.halt(
            diverging.other_step(expected, reserved.call_id, spec.name, found, spec.client)
        )

    def _new(self, reserved: Reserved, events: list[Event]) -> OpenStep:
        if self.mode != "live":
            if self.index.completed is None and self.index.failure is None:
                error = RecordEndedError(str(self.run_id), self.index.version, reserved.call_id)
                raise self._halt_with(error)
            found = self._found(reserved)
            raise self.halt(diverging.added_step(self.index, reserved.call_id, found))
        return self._start(reserved, 1, events)

    def _start(self, reserved: Reserved, attempt: int, events: list[Event]) -> OpenStep:
        self.append([*events, started(reserved, attempt)])
        entry = self.index.entries[reserved.call_id]
        entry.asked = entry.performed = True
        with self._lock:
            # Another attempt in this process takes what its inner steps of the first one did.
            self._ordinals.pop(reserved.call_id, None)
        return OpenStep(self, reserved, attempt)

    def _again(
        self, reserved: Reserved, entry: StepEntry, events: list[Event]
    ) -> StepOutcome | OpenStep:
        """A step that was begun, and of which nobody knows how it ended."""
        spec, before = reserved.spec, list[Event]()
        policy = max((spec.on_interrupt, entry.on_interrupt), key=_CAREFUL.index)
        if not entry.in_doubt and (entry.kind == "tool" or policy != "retry"):
            before.append(in_doubt(entry))
        decided = entry.decision
        if decided is None and policy == "ask":
            self.wait_for([entry])
        if decided is None and policy == "fail":
            unknown = (UNKNOWN_OUTCOME, "the process that ran it was interrupted")
            return self._settled(entry, before, unknown)
        if decided is not None and decided.decision == "failed":
            return self._settled(entry, before, (DECIDED_FAILED, decided.text or "it failed"))
        if decided is not None and decided.decision == "completed":
            self._check_decided(spec, entry, decided.value)
            return self._decided_value(entry, before, decided.value)
        return self._start(reserved, entry.attempts + 1, [*before, *events])

    def wait_for(self, entries: Sequence[StepEntry]) -> NoReturn:
        """Let the run wait until a person has said how these steps ended."""
        ids = tuple(entry.call_id for entry in entries)
        doubts = [in_doubt(entry) for entry in entries if not entry.in_doubt]
        self.append([*doubts, RunWaiting(reason=WAITS, call_ids=ids)])
        raise self._halt_with(DecisionRequiredError(str(self.run_id), ids))

    def _settled(
        self, entry: StepEntry, before: list[Event], error: tuple[str, str]
    ) -> StepOutcome:
        event = failed(entry, *error)
        self.append([*before, event])
        assert entry.outcome is not None
        return entry.outcome

    def _check_decided(self, spec: StepSpec, entry: StepEntry, value: Any) -> None:
        """Refuse a value that a person gave and the step's caller can't take; nothing is lost."""
        try:
            if spec.takes is not None:
                spec.takes(value)
        except Exception as error:
            run = self.run_id
            refused = DecidedValueError(
                f"The value that was decided for step {entry.call_id} of run {run} does not fit: "
                f"{error_message(error)}. Decide again: turnledger resolve {run} {entry.call_id} "
                "--completed JSON, --failed TEXT or --retry."
            )
            raise self._halt_with(refused) from error

    def _decided_value(self, entry: StepEntry, before: list[Event], value: Any) -> StepOutcome:
        event = completed(entry, value)
        self.append([*before, event])
        assert entry.outcome is not None
        return entry.outcome

    # --- after ---

    def append(
        self, events: Sequence[Event | Entry], blobs: Iterable[bytes] = ()
    ) -> Sequence[Record]:
        """Append to the run; on disk when it returns. Nothing in a replay."""
        if self.mode != "live":
            raise InvalidInputError(
                f"Run {self.run_id} is {self.mode}: nothing can be appended to it here."
            )
        try:
            records = self._append(events, blobs)
        except Exception as error:
            # Whatever could not be recorded: nothing further may happen without a record.
            if not isinstance(error, InvalidInputError):
                self._halt_with(error)
            raise
        except BaseException:
            self._halt_with(
                StoreUnavailableError(
                    f"An append to run {self.run_id} was interrupted: whether it is on disk is "
                    "unknown. Enter the run again."
                )
            )
            raise
        with self._lock:
            for record in records:
                self.index.take(record)
        return records

    def settle_streams(self, *, all_of_them: bool = False) -> None:
        """Record the streams that their readers have left, or all that are not at their end."""
        for stream in list(self.streams.values()):
            if all_of_them or stream.is_left:
                stream.settle()

    def settle_left_in(self, call_id: str) -> None:
        """Record what the code of this step has left behind: the step ends."""
        for one in list(self.streams.values()):
            if isinstance(one, LeftStep) and one.parent == call_id:
                one.settle()

    def left(self, step: LeftStep) -> None:
        """A step was interrupted, and with it what is in it."""
        for call_id, one in list(self.streams.items()):
            if call_id.startswith(f"{step.call_id}/"):
                one.abandon()
        self.streams[step.call_id] = step

    def closed(self, call_id: str) -> None:
        """A step is not under way any more."""
        with self._lock:
            self._open.discard(call_id)
            same = self._keyless_ids.pop(call_id, None)
            if same is not None:
                self._keyless.discard(same)

    def check(self) -> None:
        """Raise what the run was halted by, or that its claim is lost."""
        if self.halted is not None:
            raise self.halted
        try:
            self._check_claim()
        except Exception as error:
            raise self._halt_with(error) from None

    def check_inside(self, call_id: str) -> None:
        """Raise what the run was halted by, if the code of this step was told of it.

        What such code returns or raises is no outcome of the step, whatever it made of the error.
        """
        halted = self.halted
        if halted is not None and any(
            one == call_id or one.startswith(f"{call_id}/") for one in self._told
        ):
            raise halted

    def stop(self, error: Exception, call_id: str) -> None:
        """The run goes no further in this process, and the code of this step is told so."""
        self._halt_with(error)
        self._told.add(call_id)

    def close(self) -> None:
        """No step begins any more: the block has ended. Open ones may still record their end."""
        self._halt_with(
            InvalidInputError(
                f"The block of run {self.run_id} has ended, and a step was begun after that. Wait "
                "for threads and tasks inside the block."
            )
        )

    def halt(self, found: Divergence) -> Exception:
        """The error of a divergence; every further step raises it too."""
        return self._halt_with(ReplayDivergedError(str(self.run_id), found))

    def _halt_with(self, error: Exception) -> Exception:
        self.halted = self.halted or error
        return error

    def _found(self, reserved: Reserved) -> Any:
        spec = reserved.spec
        if spec.kind == "tool" or spec.request is None:
            return reserved.arguments
        return self.index.whole_request(spec.request)

    def read_on(self, call_id: str) -> Exception:
        """The error of code that reads on in a stream that the recorded run left."""
        return self.halt(diverging.read_on(self.index.entries[call_id]))
