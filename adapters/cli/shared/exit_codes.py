"""What the command's exit codes mean, and which error gives which: the one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from turnledger.ledger import (
    BlobNotFoundError,
    ConcurrentAppendError,
    IntegrityFailureError,
    InvalidRunIdError,
    InvalidUrlError,
    RecordNotFoundError,
    RunClaimedError,
    RunNotFoundError,
    StaleEpochError,
    TurnledgerError,
)
from turnledger.projections import TableNotMadeError
from turnledger.runtime.errors import CheckpointNotFoundError, DecisionRequiredError


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    VERSION_CONFLICT = 4
    INTEGRITY_FAILURE = 5
    REPLAY_DIVERGENCE = 6
    LEASE_HELD = 7
    WAITING = 8
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "it worked",
    ExitCode.ERROR: "an error; stderr says which",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.NOT_FOUND: "no such run, record, blob or table",
    ExitCode.VERSION_CONFLICT: "the run is not at the expected version",
    ExitCode.INTEGRITY_FAILURE: "something is not as it was recorded, or conflicts with what is",
    ExitCode.REPLAY_DIVERGENCE: "a replay, or a run compared with another, differs",
    ExitCode.LEASE_HELD: "another worker has the run",
    ExitCode.WAITING: "the run waits for a person's decision",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.BROKEN_PIPE: "the reader of the output went away",
    ExitCode.TERMINATED: "ended by SIGTERM, while recovering",
}

# The first that fits counts; subclasses come with their parents.
ERRORS: tuple[tuple[type[TurnledgerError], ExitCode], ...] = (
    (InvalidUrlError, ExitCode.USAGE),
    (InvalidRunIdError, ExitCode.USAGE),
    (RunNotFoundError, ExitCode.NOT_FOUND),
    (RecordNotFoundError, ExitCode.NOT_FOUND),
    (BlobNotFoundError, ExitCode.NOT_FOUND),
    (TableNotMadeError, ExitCode.NOT_FOUND),
    (ConcurrentAppendError, ExitCode.VERSION_CONFLICT),
    (IntegrityFailureError, ExitCode.INTEGRITY_FAILURE),
    (DecisionRequiredError, ExitCode.WAITING),
    (CheckpointNotFoundError, ExitCode.NOT_FOUND),
    (RunClaimedError, ExitCode.LEASE_HELD),
    (StaleEpochError, ExitCode.LEASE_HELD),
    (TurnledgerError, ExitCode.ERROR),
)


def exit_code_of(error: TurnledgerError) -> ExitCode:
    """The code that the command ends with after this error."""
    return next(code for kind, code in ERRORS if isinstance(error, kind))
