"""Scenario: a process is SIGKILLed while its command runs in a sandbox; what is left of it?"""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

from tests.crash.processes import Crew, Voice
from tests.sandboxes import RUNNERS, sandboxed_processes
from turnledger.runtime.workspace import SandboxCommand

COMMAND = "trap '' HUP INT TERM; (setsid sleep 1000 &); echo x > said; sleep 1000"


def run(crew: Crew, *, runner: str, folder: str) -> dict[str, Any]:
    """The processes of the sandbox while the command ran, and those that did not end with it."""
    directory = Path(folder)
    os.mkfifo(directory / "said", 0o666)
    victim = crew.start("dies", _execute, runner, folder)
    (directory / "said").read_text()
    running = sandboxed_processes(directory)
    watched = [os.pidfd_open(int(process)) for process in running]
    crew.kill(victim)
    left = [process for process in watched if not select.select([process], [], [], 20)[0]]
    return {"running": len(running), "left": len(left) + len(sandboxed_processes(directory))}


def _execute(voice: Voice, runner: str, folder: str) -> None:
    RUNNERS[runner]().run(Path(folder), SandboxCommand(("sh", "-c", COMMAND), "", 100))
