"""Exit codes of the command line: their meanings, and the errors that give them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command."""

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
    ExitCode.OK: "success",
    ExitCode.ERROR: "error; the message is on stderr",
    ExitCode.USAGE: "invalid command line",
    ExitCode.NOT_FOUND: "no such run, record, blob or table",
    ExitCode.VERSION_CONFLICT: "the run is not at the expected version",
    ExitCode.INTEGRITY_FAILURE: (
        "integrity check failed, or an import conflicts with recorded events"
    ),
    ExitCode.REPLAY_DIVERGENCE: "a replay diverged, or the compared runs differ",
    ExitCode.LEASE_HELD: "another worker holds the run's lease",
    ExitCode.WAITING: "the run waits for a person's decision",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.BROKEN_PIPE: "the reader closed the output pipe",
    ExitCode.TERMINATED: "ended by SIGTERM while recovering",
}

# By class name, of the error or its nearest parent, so that this module imports no error.
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
    "EventDecodeError": ExitCode.INTEGRITY_FAILURE,
    "DecisionRequiredError": ExitCode.WAITING,
    "RunClaimedError": ExitCode.LEASE_HELD,
    "StaleEpochError": ExitCode.LEASE_HELD,
}


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error."""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((ERRORS[name] for name in names if name in ERRORS), ExitCode.ERROR)
