"""Sandboxes for tests: those that work on this machine, and a double that starts no process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from turnledger.adapters.sandboxes import BubblewrapRunner, PodmanRunner, trial
from turnledger.runtime.workspace import SandboxCommand, SandboxOutcome, SandboxRunner

RUNNERS: dict[str, Callable[[], SandboxRunner]] = {
    "bubblewrap": BubblewrapRunner,
    "podman": PodmanRunner,
}
# `make sandbox-tests` names those that must work.
DEMANDED = os.environ.get("DEMANDED_SANDBOXES", "").split()

Deed = Callable[[Path], SandboxOutcome]


class RunnerDouble:
    """Executes functions instead of commands, by the text of the command, in this process."""

    name = "double"

    def __init__(self, deeds: Mapping[str, Deed]) -> None:
        self._deeds = deeds
        self.commands: list[SandboxCommand] = []

    def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
        self.commands.append(command)
        return self._deeds[command.stdin or command.argv[-1]](directory)


@cache
def _failure(name: str) -> str:
    return trial(RUNNERS[name]())


def working_runner(name: str) -> SandboxRunner:
    """The runner if it works here; else the test is left out, with the reason, or fails."""
    import pytest  # not for the processes of crash tests, which only need the double

    failure = _failure(name)
    if failure and name in DEMANDED:
        pytest.fail(f"{name} is demanded and does not work here: {failure}")
    if failure:
        pytest.skip(f"{name} does not work here: {failure}")
    return RUNNERS[name]()


def sandboxed_processes(directory: Path) -> list[str]:
    """The processes that have this directory mounted: all in its sandbox, whatever they are."""
    found = []
    # A mount is told by its place in its file system, which may be mounted anywhere.
    system = next(folder for folder in (directory, *directory.parents) if folder.is_mount())
    place = Path("/", directory.relative_to(system))
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            mounts = Path(f"/proc/{process}/mountinfo").read_text()
        except OSError:
            continue
        if f"{place} " in mounts:
            found.append(process)
    return found
