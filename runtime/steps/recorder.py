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
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    Record,
    RunWaiting,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    blob_name,
)
from turnledger.ledger.errors import error_message
from turnledger.ledger.runs.append import Entry
from turnledger.projections import RunState
from turnledger.runtime.agent.traceback_text import traceback_text
from turnledger.runtime.errors import DecisionRequiredError
from turnledger.runtime.journal.tool_scope import Strand, is_strand, strand
from turnledger.runtime.loop.perform.tool_in_doubt import INTERRUPTED
from turnledger.runtime.replaying.divergence import Divergence
from turnledger.runtime.replaying.replay import ReplayDivergedError
from turnledger.runtime.steps import divergence as diverging
from turnledger.runtime.steps.errors import AmbiguousStepError, RecordEndedError
from turnledger.runtime.steps.index import UNRECORDABLE, StepEntry, StepIndex, StepOutcome
from turnledger.runtime.steps.spec import (
    MOST_ARGUMENTS,
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


class OpenStream(Protocol):
    """A step that its caller may leave before its end: a stream, or a call that can be cancelled.

    That it was left is its outcome as soon as the run goes on: before the next step begins, or
    when the run completes. If the run ends otherwise, nothing came of it.
    """

    @property
    def is_left(self) -> bool:
        """Whether its reader has left it."""
        ...

    def settle(self) -> None:
        """Record it as far as it came."""
        ...

    def abandon(self) -> None:
        """Leave it without an outcome."""
        ...


@dataclass(frozen=True)
class Place:
    """Where a step is asked for: the step or call that it is in, and whether in its own thread."""

    parent: str = ""
    strand: Strand | None = None
    # Of a tool's handler, the id of its call.
    call: str = ""


@dataclass(frozen=True)
class Reserved:
    """A step that has its id, and is not begun yet."""

    spec: StepSpec
    call_id: str
    parent: str
    arguments: str
    digest: str
    aside: bool
    call: str = ""


class OpenStep:
    """A step that is under way: its start is on disk, its outcome is not."""

    def __init__(self, recorder: StepRecorder, reserved: Reserved, attempt: int) -> None:
        self._recorder = recorder
        self.spec, self.call_id, self.attempt = reserved.spec, reserved.call_id, attempt
        self._name, self._parent = reserved.spec.name, reserved.parent
        self._over = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was left."""
        return self._over

    @property
    def is_resume(self) -> bool:
        """Whether an earlier attempt of it was interrupted."""
        return self.attempt > 1

    def complete(
        self,
        data: Any,
        *,
        events: Iterable[Event] = (),
        blobs: Iterable[bytes] = (),
        usage: TokenUsage | None = None,
        finish_reason: str = "",
        model: str = "",
        message_id: UUID | None = None,
    ) -> StepOutcome:
        """Record its value.

        Args:
            data: The value, as JSON data.
            events: Recorded before it, in the same commit: messages, say.
            blobs: Bytes that the events and the value name.
            usage: Of a model's call, the tokens.
            finish_reason: Of a model's call, why the reply ended.
            model: The model that replied.
            message_id: Of a model's call, the message that holds its text.

        Returns:
            The outcome as it is recorded: that the value can't be, if so.
        """
        content = list(blobs)
        if self.spec.kind == "model":
            event: Event = ModelReplied(
                evaluation_id="",
                turn=0,
                call_id=self.call_id,
                value=data,
                usage=usage or TokenUsage(),
                finish_reason=finish_reason,
                model=model or self.spec.model,
                message_id=message_id,
                blobs=tuple(blob_name(one) for one in content),
            )
        else:
            event = ToolCallCompleted(
                evaluation_id="",
                call_id=self.call_id,
                name=self._name,
                value=data,
                attempt=self.attempt,
            )
        try:
            entry = self._recorder.ledger.prepare(event, exact=("value",))
        except InvalidInputError as error:
            return self.unrecordable(error_message(error))
        return self._end([*events, entry], content)

    def unrecordable(self, why: str) -> StepOutcome:
        """Record that it happened, and that its value can't be recorded."""
        if self.spec.kind == "model":
            return self.fail_with(error_type=UNRECORDABLE, error_message=why)
        event = ToolCallCompleted(
            evaluation_id="",
            call_id=self.call_id,
            name=self._name,
            attempt=self.attempt,
            unrecordable=why,
        )
        return self._end([event])

    def fail(self, error: Exception) -> StepOutcome:
        """Record the error that it ended with: class name, text and traceback."""
        shown = traceback_text(error, self._recorder.ledger.redact_text)
        return self.fail_with(
            error_type=type(error).__name__, error_message=text_of(error), traceback=shown
        )

    def fail_with(
        self,
        *,
        error_type: str,
        error_message: str,
        status: int | None = None,
        value: Any = None,
        traceback: str = "",
    ) -> StepOutcome:
        """Record an error as the outcome.

        Args:
            error_type: The name of the error's class.
            error_message: Its text.
            status: Of a model's call, the status of the answer.
            value: Of a model's call, the answer.
            traceback: The frames of the user's code.
        """
        if self.spec.kind == "model":
            failed = self._call_failed(error_type, error_message, status, value, final=True)
            return self._end([failed])
        event = ToolCallFailed(
            evaluation_id="",
            call_id=self.call_id,
            name=self._name,
            error_type=error_type,
            error_message=error_message,
            attempt=self.attempt,
            traceback=traceback,
        )
        return self._end([event])

    def attempt_failed(
        self,
        *,
        error_type: str,
        error_message: str,
        status: int | None = None,
        value: Any = None,
    ) -> None:
        """Record a failed attempt of a model's call that is tried again.

        Args:
            error_type: The name of the error's class.
            error_message: Its text.
            status: The status of the answer, if one came.
            value: The answer.
        """
        failed = self._call_failed(error_type, error_message, status, value, final=False)
        self._recorder.append([failed])

    def _call_failed(
        self, error_type: str, message: str, status: int | None, value: Any, *, final: bool
    ) -> ModelCallFailed:
        return ModelCallFailed(
            evaluation_id="",
            turn=0,
            call_id=self.call_id,
            error_type=error_type,
            error_message=message,
            status=status,
            attempt=self.attempt,
            retryable=not final,
            final=final,
            value=value,
        )

    def leave(self) -> None:
        """End it without an outcome: it was interrupted, and a resume finds it in doubt."""
        if not self._over:
            self._over = True
            self._recorder.closed(self.call_id)

    def interrupted(self, error: BaseException) -> None:
        """Leave it; if the code around it goes on all the same, that becomes its outcome."""
        if not self._over:
            self.leave()
            self._recorder.left(LeftStep(self._recorder, self, self._parent, error))

    def _end(self, events: Sequence[Event | Entry], blobs: Sequence[bytes] = ()) -> StepOutcome:
        try:
            self._recorder.check_inside(self.call_id)
            self._recorder.settle_left_in(self.call_id)
            self._recorder.append(events, blobs)
        except Exception as error:
            # It has happened, and that is not on record.
            self._recorder.stop(error, self._parent)
            raise
        finally:
            self.leave()
        outcome = self._recorder.index.entries[self.call_id].outcome
        assert outcome is not None
        return outcome


class LeftStep:
    """A step that was interrupted: its task was cancelled, by a time limit say.

    That is its outcome once the code that it is in goes on: asks for another step, or ends. With
    on_interrupt="ask" the run waits then. If that code is interrupted too, nothing came of it.
    """

    def __init__(
        self, recorder: StepRecorder, step: OpenStep, parent: str, error: BaseException
    ) -> None:
        self._recorder, self._step, self._error = recorder, step, error
        self.call_id, self.parent, self.strand = step.call_id, parent, strand()
        self.is_left = False

    def settle(self) -> None:
        """Record how it ended; DecisionRequiredError if a person has to say so."""
        if self._recorder.streams.pop(self.call_id, None) is not self:
            return
        entry = self._recorder.index.entries[self.call_id]
        if "ask" in (entry.on_interrupt, self._step.spec.on_interrupt):
            self._recorder.wait_for([entry])
        name = type(self._error).__name__
        self._step.fail_with(error_type=name, error_message=f"it was interrupted by {name}")

    def abandon(self) -> None:
        """Leave it without an outcome."""
        self._recorder.streams.pop(self.call_id, None)


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
        self.append([*events, _started(reserved, attempt)])
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
            before.append(_in_doubt(entry))
        decided = entry.decision
        if decided is None and policy == "ask":
            self.wait_for([entry])
        if decided is None and policy == "fail":
            unknown = (UNKNOWN_OUTCOME, "the process that ran it was interrupted")
            return self._settled(entry, before, unknown)
        if decided is not None and decided.decision == "failed":
            return self._settled(entry, before, (DECIDED_FAILED, decided.text or "it failed"))
        if decided is not None and decided.decision == "completed":
            return self._decided_value(entry, before, decided.value)
        return self._start(reserved, entry.attempts + 1, [*before, *events])

    def wait_for(self, entries: Sequence[StepEntry]) -> NoReturn:
        """Let the run wait until a person has said how these steps ended."""
        ids = tuple(entry.call_id for entry in entries)
        doubts = [_in_doubt(entry) for entry in entries if not entry.in_doubt]
        self.append([*doubts, RunWaiting(reason=_WAITS, call_ids=ids)])
        raise self._halt_with(DecisionRequiredError(str(self.run_id), ids))

    def _settled(
        self, entry: StepEntry, before: list[Event], error: tuple[str, str]
    ) -> StepOutcome:
        kind, text = error
        event: Event
        if entry.kind == "model":
            event = ModelCallFailed(
                evaluation_id="",
                turn=0,
                call_id=entry.call_id,
                error_type=kind,
                error_message=text,
                attempt=entry.attempts,
                final=True,
            )
        else:
            event = ToolCallFailed(
                evaluation_id="",
                call_id=entry.call_id,
                name=entry.name,
                error_type=kind,
                error_message=text,
                attempt=entry.attempts,
            )
        self.append([*before, event])
        assert entry.outcome is not None
        return entry.outcome

    def _decided_value(self, entry: StepEntry, before: list[Event], value: Any) -> StepOutcome:
        event: Event
        if entry.kind == "model":
            event = ModelReplied(evaluation_id="", turn=0, call_id=entry.call_id, value=value)
        else:
            event = ToolCallCompleted(
                evaluation_id="",
                call_id=entry.call_id,
                name=entry.name,
                value=value,
                attempt=entry.attempts,
            )
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


# Recorded words.
_WAITS = "nobody knows how these calls ended"


def _in_doubt(entry: StepEntry) -> ToolCallInDoubt:
    return ToolCallInDoubt(
        evaluation_id="",
        call_id=entry.call_id,
        name=entry.name,
        attempt=entry.attempts,
        reason=INTERRUPTED,
    )


def _started(reserved: Reserved, attempt: int) -> Event:
    spec = reserved.spec
    if spec.kind == "model":
        return ModelCalled(
            evaluation_id="",
            turn=0,
            call_id=reserved.call_id,
            parent=reserved.call or reserved.parent,
            name=spec.name,
            request_digest=reserved.digest,
            request=spec.request,
            model=spec.model,
            client=spec.client,
            attempt=attempt,
            on_interrupt=spec.on_interrupt,
            aside=reserved.aside,
        )
    text = reserved.arguments
    return ToolCallStarted(
        evaluation_id="",
        call_id=reserved.call_id,
        name=spec.name,
        parent=reserved.call or reserved.parent,
        digest=reserved.digest,
        arguments=text if len(text) <= MOST_ARGUMENTS else "",
        attempt=attempt,
        on_interrupt=spec.on_interrupt,
        aside=reserved.aside,
    )


def text_of(error: BaseException) -> str:
    """The text of an error, with which its class makes it again."""
    args = error.args
    told = len(args) == 1 and isinstance(args[0], str)
    # Of a KeyError the text is not that of `str`. Either way it can be stored.
    return error_message(Exception(args[0]) if told else error)
