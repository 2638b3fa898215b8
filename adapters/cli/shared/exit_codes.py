"""Exit codes of the command line: their meanings, and the errors that give them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command, and its meaning."""

    OK = 0, "success"
    ERROR = 1, "error; the message is on stderr"
    USAGE = 2, "invalid command line"
    NOT_FOUND = 3, "no such run, record, blob, table or access token"
    VERSION_CONFLICT = 4, "the run is not at the expected version"
    INTEGRITY_FAILURE = 5, "integrity check failed, or an import conflicts with recorded events"
    REPLAY_DIVERGENCE = 6, "a replay diverged, or the compared runs differ"
    LEASE_HELD = 7, "another worker holds the run's lease"
    WAITING = 8, "the run waits for a person's decision"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"
    BROKEN_PIPE = 141, "the reader closed the output pipe"
    TERMINATED = 143, "ended by SIGTERM while recovering"

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> ExitCode:
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member


MEANINGS: Mapping[ExitCode, str] = {code: code.meaning for code in ExitCode}

# By class name, of the error or its nearest parent, so that this module imports no error.
ERRORS: Mapping[str, ExitCode] = {
    "InvalidUrlError": ExitCode.USAGE,
    "InvalidRunIdError": ExitCode.USAGE,
    "RunNotFoundError": ExitCode.NOT_FOUND,
    "RecordNotFoundError": ExitCode.NOT_FOUND,
    "BlobNotFoundError": ExitCode.NOT_FOUND,
    "TableNotMadeError": ExitCode.NOT_FOUND,
    "TokenNotFoundError": ExitCode.NOT_FOUND,
    "CheckpointNotFoundError": ExitCode.NOT_FOUND,
    "CallNotFoundError": ExitCode.NOT_FOUND,
    "ConcurrentAppendError": ExitCode.VERSION_CONFLICT,
    "CallChangedError": ExitCode.VERSION_CONFLICT,
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
