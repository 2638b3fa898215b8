"""Outcomes of steps as the caller gets them: the same in the live run and on every resume.

An error is recorded by its class's name, and raised again as the class of that name among the
step's `raises` and the built-ins, made of its text. Any other is a StepFailedError, live too, so
that live and resumed code take the same `except`.
"""

from __future__ import annotations

import builtins
from typing import NoReturn

from turnledger.ledger import (
    IntegrityFailureError,
    LedgerClosedError,
    RunClaimedError,
    StaleEpochError,
    StoreBusyError,
    StoreUnavailableError,
)
from turnledger.runtime.errors import DecisionRequiredError
from turnledger.runtime.replaying.replay import ReplayDivergedError
from turnledger.runtime.steps.errors import (
    DecidedValueError,
    OutcomeUnknownError,
    RecordEndedError,
    StepFailedError,
    StepsOpenError,
    UnrecordableResultError,
)
from turnledger.runtime.steps.record.index import StepOutcome
from turnledger.runtime.steps.record.open_step import OpenStep, text_of
from turnledger.runtime.steps.record.recorder import UNKNOWN_OUTCOME

Raises = tuple[type[Exception], ...]
# Neither a step nor a run has failed by these: it can be gone on with.
NO_OUTCOME = (
    DecidedValueError,
    DecisionRequiredError,
    IntegrityFailureError,
    LedgerClosedError,
    RecordEndedError,
    ReplayDivergedError,
    RunClaimedError,
    StaleEpochError,
    StepsOpenError,
    StoreBusyError,
    StoreUnavailableError,
)


def raise_outcome(outcome: StepOutcome, raises: Raises = ()) -> None:
    """Raise a recorded outcome that is not a value; `raises` as of the step."""
    if outcome.unrecordable:
        raise UnrecordableResultError(outcome.call_id, outcome.unrecordable)
    if outcome.failed:
        raise made_again(outcome, raises)


def raised_live(step: OpenStep, error: Exception) -> NoReturn:
    """Record the error that a step raised, and raise it as a resume will."""
    outcome = step.fail(error)
    raise made_again(outcome, step.spec.raises) from error


def made_again(outcome: StepOutcome, raises: Raises) -> Exception:
    """The error of an outcome, made of its class's name and its text."""
    kind = next((one for one in raises if one.__name__ == outcome.error_type), None)
    if kind is None:
        found = getattr(builtins, outcome.error_type, None)
        if isinstance(found, type) and issubclass(found, Exception):
            kind = found
    if kind is not None:
        try:
            made = kind(outcome.error_message)
        except Exception:  # its constructor takes something else
            made = None
        if made is not None and text_of(made) == outcome.error_message:
            if outcome.traceback:
                made.add_note(f"Recorded traceback:\n{outcome.traceback}")
            return made
    if outcome.error_type == UNKNOWN_OUTCOME:
        return OutcomeUnknownError(outcome.call_id)
    return StepFailedError(
        outcome.call_id, outcome.error_type, outcome.error_message, outcome.traceback
    )
