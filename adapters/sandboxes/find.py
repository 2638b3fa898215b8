"""Finds a sandbox that works on this machine: a runner counts if it has executed a command.

A program that is installed proves nothing: many containers forbid what bubblewrap and podman
need.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from turnledger.adapters.sandboxes.bubblewrap import BubblewrapRunner
from turnledger.adapters.sandboxes.podman import IMAGE, PodmanRunner
from turnledger.runtime.workspace import SandboxCommand, SandboxRunner, SandboxUnavailableError

_TRIAL = SandboxCommand(
    ("sh", "-c", "echo it works > trial && python3 -B -"), stdin='print(open("trial").read())'
)


def find_runner() -> SandboxRunner:
    """Return podman's runner if it works here, else bubblewrap's.

    Each is tried once in a process. SandboxUnavailableError says what failed in both.
    """
    found = _found()
    if isinstance(found, str):
        raise SandboxUnavailableError(found)
    return found


@cache
def _found() -> SandboxRunner | str:
    return first_that_works([PodmanRunner(), BubblewrapRunner()])


def first_that_works(runners: Sequence[SandboxRunner]) -> SandboxRunner | str:
    """Return the first runner that executes a command; else why none of them does."""
    failures = []
    for runner in runners:
        failure = trial(runner)
        if not failure:
            return runner
        failures.append(f"{runner.name}: {failure}")
    return (
        "No sandbox works here, and commands never run without one. Install the package podman "
        f"(and pull the image {IMAGE}) or the package bubblewrap. "
        f"{' '.join(failures)}"
    )


def trial(runner: SandboxRunner) -> str:
    """Execute a command that reads and writes; returns what failed, or empty text."""
    with tempfile.TemporaryDirectory(prefix="turnledger-sandbox-") as directory:
        try:
            outcome = runner.run(Path(directory), _TRIAL)
        except SandboxUnavailableError as error:
            return str(error).strip()
    if outcome.exit_code == 0 and outcome.stdout.strip() == "it works":
        return ""
    said = outcome.stopped or outcome.stderr.strip() or outcome.stdout.strip()
    return f"The trial command ended with exit code {outcome.exit_code}: {said}"
