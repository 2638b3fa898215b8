"""Errors of durable steps; all are under TurnledgerError.

In a run that waits, differs from its record or lost its claim, every further step raises the same
error again, so that code that catches it can't go on without the record.
"""

from __future__ import annotations

from turnledger.ledger.errors import TurnledgerError


class StepDefinitionError(TurnledgerError, ValueError):
    """A function can't be a step or a workflow: a generator, or a type that JSON can't hold."""

    def __init__(self, message: str, *, name: str = "") -> None:
        self.name = name
        super().__init__(f"Step {name!r}: {message}" if name else message)


class AmbiguousStepError(TurnledgerError, RuntimeError):
    """Two steps would have the same id, so that one could get the other's recorded result."""

    def __init__(self, call_id: str, why: str) -> None:
        self.call_id = call_id
        super().__init__(f"Step {call_id}: {why}")


class UnrecordableResultError(TurnledgerError, RuntimeError):
    """A step happened, and its result can't be recorded. A resume raises this too."""

    def __init__(self, call_id: str, why: str) -> None:
        self.call_id, self.why = call_id, why
        super().__init__(
            f"Step {call_id} has happened, and its result can't be recorded: "
            f"{why.rstrip('.')}. It is not repeated. Return what JSON can hold, without secrets, "
            "and annotate the function with its type."
        )


class StepFailedError(TurnledgerError, RuntimeError):
    """A step raised an error that is neither a built-in one nor among its `raises`.

    Attributes:
        error_type: The name of the error's class.
        error_message: Its text.
        traceback: The recorded frames of the user's code; empty in the run that recorded them.
    """

    def __init__(
        self, call_id: str, error_type: str, error_message: str, traceback: str = ""
    ) -> None:
        self.call_id, self.error_type, self.error_message = call_id, error_type, error_message
        self.traceback = traceback
        super().__init__(f"Step {call_id} failed: {error_type}: {error_message}")


class OutcomeUnknownError(TurnledgerError, RuntimeError):
    """A step with on_interrupt="fail" was interrupted: it may or may not have happened."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"The outcome of step {call_id} is unknown: the process that ran it was interrupted. "
            "It may or may not have happened, and is not tried again."
        )


class DecidedValueError(TurnledgerError, ValueError):
    """A person decided a step's value, and its caller can't take it: it has another type."""


class RecordEndedError(TurnledgerError, RuntimeError):
    """A replay has reached the end of an interrupted run's record: nothing of it differs."""

    def __init__(self, run_id: str, version: int, call_id: str) -> None:
        self.run_id, self.version, self.call_id = run_id, version, call_id
        super().__init__(
            f"The record of run {run_id} ends at version {version}, before an outcome of step "
            f"{call_id}: the run was interrupted there. Up to there the replay is equal to it."
        )


class StepsOpenError(TurnledgerError, RuntimeError):
    """A run's block ended while steps of it were still open, in other threads or tasks."""

    def __init__(self, run_id: str, call_ids: tuple[str, ...]) -> None:
        self.run_id, self.call_ids = run_id, call_ids
        super().__init__(
            f"Run {run_id} can't be completed: these steps have not ended: {', '.join(call_ids)}. "
            "Wait for their threads or tasks inside the block."
        )
