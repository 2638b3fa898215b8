"""Ways to drive the command: in this process where a process adds nothing, else for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from click.testing import CliRunner

from turnledger.adapters.cli import turnledger
from turnledger.ledger import Event, Ledger

PROGRAM = Path(sys.executable).with_name("turnledger")
NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


class Outcome(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class InProcess:
    """The command as a function of its arguments, on one ledger."""

    def __init__(self, db: Path) -> None:
        self.db = db

    def __call__(self, *args: object, stdin: str | bytes = "", **env: str | None) -> Outcome:
        result = CliRunner().invoke(
            turnledger,
            list(map(str, args)),
            input=stdin,
            env={"TURNLEDGER_DB": str(self.db), **env},
            prog_name="turnledger",
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout_bytes.decode(), result.stderr)

    def ledger(self) -> Ledger:
        return Ledger.open(self.db)


class Processes:
    """The installed command, each time a process of its own, on one ledger."""

    def __init__(self, db: Path) -> None:
        self.db = db
        self.started: list[subprocess.Popen[bytes]] = []

    def environment(self, **env: str) -> dict[str, str]:
        return {**os.environ, "TURNLEDGER_DB": str(self.db), **env}

    def __call__(self, *args: object, stdin: str = "", **env: str) -> Outcome:
        done = subprocess.run(
            [PROGRAM, *map(str, args)],
            input=stdin.encode(),
            capture_output=True,
            env=self.environment(**env),
            timeout=60,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *command: object, **options: Any) -> subprocess.Popen[bytes]:
        """A process that goes on by itself; ended with the test whatever happens."""
        process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
            **{"stdout": subprocess.PIPE, **options},
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


# Claims the run it is told, says so, and holds it until its stdin ends.
HOLDER = """
import sys
from turnledger.ledger import Ledger
with Ledger.open(sys.argv[1]) as ledger, ledger.claim(sys.argv[2], worker="holder") as claim:
    print(claim.epoch, flush=True)
    sys.stdin.read()
"""


def hold(processes: Processes, run_id: UUID | str) -> int:
    """Have another process claim a run; the epoch that it got."""
    holder = processes.start(sys.executable, "-c", HOLDER, processes.db, run_id)
    assert holder.stdout is not None
    return int(holder.stdout.readline())


def given(event: Event, **more: object) -> dict[str, object]:
    """An event as the command takes it."""
    return {"type": event.tag, "data": msgspec.to_builtins(event), **more}


def json_lines(*events: object) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def note(text: object = "", **more: object) -> dict[str, object]:
    return {"type": "custom", "data": {"kind": "test.note", "data": text}, **more}
