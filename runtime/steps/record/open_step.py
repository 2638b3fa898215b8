"""`OpenStep`: a step that is under way, and the ways in which it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, NoReturn, Protocol
from uuid import UUID

from msgspec.structs import replace

from turnledger.ledger import (
    Event,
    InvalidInputError,
    Ledger,
    ModelCallFailed,
    ModelReplied,
    Record,
    RedactedPart,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    blob_name,
)
from turnledger.ledger.errors import error_message
from turnledger.ledger.runs.append import Entry
from turnledger.runtime.agent.traceback_text import traceback_text
from turnledger.runtime.journal.tool_scope import strand
from turnledger.runtime.steps.record.index import (
    UNRECORDABLE,
    StepEntry,
    StepIndex,
    StepOutcome,
)
from turnledger.runtime.steps.record.step_events import Reserved


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


class Recording(Protocol):
    """What an open step needs of its run: see `StepRecorder`."""

    ledger: Ledger
    index: StepIndex

    @property
    def streams(self) -> MutableMapping[str, OpenStream]: ...

    def append(
        self, events: Sequence[Event | Entry], blobs: Iterable[bytes] = ()
    ) -> Sequence[Record]: ...

    def closed(self, call_id: str) -> None: ...

    def left(self, step: LeftStep) -> None: ...

    def check_inside(self, call_id: str) -> None: ...

    def settle_left_in(self, call_id: str) -> None: ...

    def stop(self, error: Exception, call_id: str) -> None: ...

    def wait_for(self, entries: Sequence[StepEntry]) -> NoReturn: ...


class OpenStep:
    """A step that is under way: its start is on disk, its outcome is not."""

    def __init__(self, recorder: Recording, reserved: Reserved, attempt: int) -> None:
        self._recorder = recorder
        self.spec, self.call_id, self.attempt = reserved.spec, reserved.call_id, attempt
        self._name, self._parent = reserved.spec.name, reserved.parent
        self._over = False
        # Whether its value was recorded redacted: then its caller gets the recorded one.
        self.is_redacted = False

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
        redacted: Sequence[RedactedPart] = (),
        takes: Callable[[Any], object] | None = None,
    ) -> StepOutcome:
        """Record its value; that it can't be recorded, if the redactor would change it.

        With a redactor's `on_redacted="warn"` it is recorded redacted. A resume gets that value,
        so the caller has to give it to the live program too.

        Args:
            data: The value, as JSON data.
            events: Recorded before it, in the same commit: messages, say.
            blobs: Bytes that the events and the value name.
            usage: Of a model's call, the tokens.
            finish_reason: Of a model's call, why the reply ended.
            model: The model that replied.
            message_id: Of a model's call, the message that holds its text.
            redacted: What the caller has redacted in the value already, with paths from the event.
            takes: Raises for a redacted value that the caller can't take; by default the step's.

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
            entry = self._prepared(event, redacted, takes or self.spec.takes)
        except InvalidInputError as error:
            return self.unrecordable(error_message(error))
        outcome = self._end([*events, entry], content)
        made: Any = entry.event
        if outcome.value is not made.value and outcome.value != made.value:
            self.is_redacted = True  # by a server, whose redactor knows more
        return outcome

    def _prepared(
        self,
        event: Event,
        redacted: Sequence[RedactedPart],
        takes: Callable[[Any], object] | None,
    ) -> Entry:
        ledger = self._recorder.ledger
        reads = None if takes is None else lambda made: takes(made.value)
        entry = ledger.prepare(event, exact=("value",), takes=reads)
        if redacted:
            entry = replace(entry, redacted=(*redacted, *entry.redacted))
        self.is_redacted = bool(entry.redacted_state)
        if redacted and ledger.redactor is not None and ledger.redactor.on_redacted == "refuse":
            raise entry.refused()
        return entry

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
        self, recorder: Recording, step: OpenStep, parent: str, error: BaseException
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
        # Its code did not come to its end: what is in it may not be asked for this time.
        entry.performed = False
        name = type(self._error).__name__
        self._step.fail_with(error_type=name, error_message=f"it was interrupted by {name}")

    def abandon(self) -> None:
        """Leave it without an outcome."""
        self._recorder.streams.pop(self.call_id, None)


def text_of(error: BaseException) -> str:
    """The text of an error, with which its class makes it again."""
    args = error.args
    told = len(args) == 1 and isinstance(args[0], str)
    # Of a KeyError the text is not that of `str`. Either way it can be stored.
    return error_message(Exception(args[0]) if told else error)
