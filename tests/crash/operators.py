"""Agents that execute commands over a workspace, and may die before, in and after each of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from tests.agent import calls, says
from tests.crash.agents import SCRIPTS, Clerk
from tests.sandboxes import RunnerDouble
from turnledger.adapters.sandboxes import BubblewrapRunner
from turnledger.runtime.workspace import (
    PodmanSandboxSection,
    SandboxCommand,
    SandboxOutcome,
    SandboxRunner,
    WorkspaceSection,
)

# The real command says by the pipe that it is in the middle of its work.
_SAY = "exec 3> said; rm said; echo x >&3; exec 3>&-"
COMMANDS = {
    "double": ["build", "break", "count"],
    "bubblewrap": [
        f"echo half > out.txt; {_SAY}; echo whole > out.txt; cat out.txt",
        f"rm out.txt; echo lost > lost.txt; {_SAY}; exit 1",
        f"cat out.txt > copy.txt; {_SAY}; ls",
    ],
}
for _kind, _commands in COMMANDS.items():
    SCRIPTS[_kind] = [
        *(
            calls((f"s{n}", "shell_execute", msgspec.json.encode({"command": text}).decode()))
            for n, text in enumerate(_commands)
        ),
        says("Done."),
    ]


class Operator(Clerk):
    """An agent with a sandbox: a double with deeds that are interrupted, or bubblewrap."""

    def _section(self) -> WorkspaceSection:
        runner: SandboxRunner = _double(self._point)
        if self.kind == "bubblewrap":
            runner = _Interrupted(self._point)
        return PodmanSandboxSection(runner=runner)

    def effects(self) -> list[str]:
        """Beside the files, nothing: an interrupted command may have left a pipe."""
        for pipe in self._folder.glob("workspace-*/said"):
            pipe.unlink()
        return super().effects()


def _double(point: Callable[[str], None]) -> RunnerDouble:
    def build(directory: Path) -> SandboxOutcome:
        point("before the command")
        (directory / "out.txt").write_text("ha")
        point("in the middle of the command")
        (directory / "out.txt").write_text("half")
        (directory / "folder").mkdir()
        (directory / "folder" / "file").write_text("whole")
        point("after the command")
        return SandboxOutcome(exit_code=0, stdout="built")

    def fail(directory: Path) -> SandboxOutcome:
        (directory / "out.txt").unlink()
        (directory / "lost.txt").write_text("lost")
        point("in a command that fails")
        return SandboxOutcome(exit_code=1, stderr="broken")

    def count(directory: Path) -> SandboxOutcome:
        names = sorted(path.name for path in directory.rglob("*"))
        (directory / "names.txt").write_text(f"{names}")
        point("in the last command")
        return SandboxOutcome(exit_code=0, stdout=f"{names}")

    return RunnerDouble({"build": build, "break": fail, "count": count})


class _Interrupted:
    """bubblewrap, with a moment before, in and after each command."""

    name = "bubblewrap"

    def __init__(self, point: Callable[[str], None]) -> None:
        self._point = point
        self._runner = BubblewrapRunner()

    def run(self, directory: Path, command: SandboxCommand) -> SandboxOutcome:
        self._point("before the command")
        os.mkfifo(directory / "said")
        listener = Thread(target=self._listen, args=(directory / "said",))
        listener.start()
        outcome = self._runner.run(directory, command)
        listener.join()
        self._point("after the command")
        return outcome

    def _listen(self, pipe: Path) -> Any:
        pipe.read_text()
        self._point("in the middle of the command")
