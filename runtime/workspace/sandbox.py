"""Sandbox runners: the protocol of what executes one command over the workspace, and its limits.

The runners themselves start processes and are in `turnledger.adapters.sandboxes`. Nothing here
executes a command without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import InvalidInputError, TurnledgerError, short_repr

# Named by text, as in an entry point: runtime imports nothing from adapters.
_FIND_RUNNER = "turnledger.adapters.sandboxes:find_runner"


class SandboxUnavailableError(TurnledgerError, RuntimeError):
    """A sandbox can't execute a command here; the message says what failed."""


@dataclass(frozen=True)
class SandboxLimits:
    """What a command may use, whichever runner executes it.

    Attributes:
        command_characters: Length of a command or a program.
        seconds: The longest time-out.
        output_bytes: What is kept of the output: half of it the beginning of standard output,
            the other half that of standard error.
        memory_bytes: Of one process and of all together.
        file_bytes: Size of one file; the ledger's limit of a blob, so that it can be recorded.
        workspace_bytes: What all files of the workspace may take on disk.
        workspace_files: How many files and directories the workspace may have.
        temporary_bytes: Size of /tmp and of /dev/shm, each, which are gone after the command.
        processes: Processes and threads at one time.
        open_files: Open files of one process.
    """

    command_characters: int = 4096
    seconds: int = 120
    output_bytes: int = 32 * 1024
    memory_bytes: int = 1024**3
    file_bytes: int = 64 * 1024**2
    workspace_bytes: int = 1024**3
    workspace_files: int = 50_000
    temporary_bytes: int = 64 * 1024**2
    processes: int = 128
    open_files: int = 256


LIMITS = SandboxLimits()


@check_methods()
@dataclass(frozen=True)
class SandboxCommand:
    """A command to execute: a program with its arguments, standard input and a time-out.

    Attributes:
        argv: The program and its arguments.
        stdin: Text for standard input.
        timeout_seconds: 1 to 120.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    timeout_seconds: int = 30

    def __post_init__(self) -> None:
        if not self.argv or not all(isinstance(one, str) for one in self.argv):
            raise InvalidInputError(
                f"Invalid argv {short_repr(self.argv)}: expected a program and arguments, as text."
            )
        for text in (*self.argv, self.stdin):
            if len(text) > LIMITS.command_characters:
                raise InvalidInputError(
                    f"The command has {len(text):,} characters: expected at most "
                    f"{LIMITS.command_characters:,}. Write it to a file and execute that."
                )
            if "\0" in text or (not text.isascii() and _has_surrogates(text)):
                raise InvalidInputError(
                    "The command has a NUL or half a surrogate pair: expected Unicode text."
                )
        if not 1 <= self.timeout_seconds <= LIMITS.seconds:
            raise InvalidInputError(
                f"Invalid timeout_seconds {self.timeout_seconds}: expected 1 to {LIMITS.seconds}."
            )


@dataclass(frozen=True, kw_only=True)
class SandboxOutcome:
    """How a command ended.

    Attributes:
        exit_code: As a shell gives it: 128 and the number of the signal if one ended it.
        stdout: Standard output; bytes that are not UTF-8 are replaced.
        stderr: Standard error, likewise.
        truncated: Whether there was more output than is kept.
        stopped: The limit that the command was stopped for ("30 seconds"); empty if it was not.
        timed_out: Whether that limit is its time-out.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    stopped: str = ""
    timed_out: bool = False


class SandboxRunner(Protocol):
    """Executes commands in a sandbox, over a directory that is their working directory.

    No network, an unprivileged user, and the limits of LIMITS. When `run` returns or raises,
    nothing that the command started is running any more, also if the calling process is killed.
    """

    @property
    def name(self) -> str:
        """The sandbox, for messages."""
        ...

    def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
        """Execute a command; SandboxUnavailableError if the sandbox can't start it."""
        ...


def default_runner() -> SandboxRunner:
    """Find a runner that works here; SandboxUnavailableError says what failed."""
    found: SandboxRunner = resolve_name(_FIND_RUNNER)()
    return found


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= one <= "\udfff" for one in text)
