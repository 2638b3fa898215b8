"""What the command's exit codes mean, and which error gives which: the one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


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

# By the name of the error's class or of its nearest parent: naming a class imports nothing.
ERRORS: Mapping[str, ExitCode] = {
    "InvalidUrlError": ExitCode.USAGE,
    "InvalidRunIdError": ExitCode.USAGE,
    "RunNotFoundError": ExitCode.NOT_FOUND,
    "RecordNotFoundError": ExitCode.NOT_FOUND,
    "BlobNotFoundError": ExitCode.NOT_FOUND,
    "TableNotMadeError": ExitCode.NOT_FOUND,
    "CheckpointNotFoundError": ExitCode.NOT_FOUND,
    "ConcurrentAppendError": ExitCode.VERSION_CONFLICT,
    "IntegrityFailureError": ExitCode.INTEGRITY_FAILURE,
    "DecisionRequiredError": ExitCode.WAITING,
    "RunClaimedError": ExitCode.LEASE_HELD,
    "StaleEpochError": ExitCode.LEASE_HELD,
}


def exit_code_of(error: BaseException) -> ExitCode:
    """The code that the command ends with after this error."""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((ERRORS[name] for name in names if name in ERRORS), ExitCode.ERROR)
