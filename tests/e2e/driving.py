"""Ways to drive the command: in this process where a process adds nothing, else for real."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
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


def on_a_terminal(processes: Processes, *args: object, **env: str) -> tuple[int, bytes]:
    """A command's exit code, and what it writes to stdout if that is a terminal."""
    code, _, written = _with_a_terminal(processes, args, "stdout", env)
    return code, written


def messages_on_a_terminal(processes: Processes, *args: object) -> tuple[str, str]:
    """What a command writes to stdout, and to stderr if that is a terminal."""
    code, out, messages = _with_a_terminal(processes, args, "stderr", {})
    assert code == 0
    return out.decode(), messages.decode()


def _with_a_terminal(
    processes: Processes, args: tuple[object, ...], stream: str, env: dict[str, str]
) -> tuple[int, bytes, bytes]:
    """A command's exit code, what it writes to the other stream, and to the terminal."""
    reading, terminal = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: terminal}
    process = subprocess.Popen(
        [PROGRAM, *map(str, args)],
        stdin=subprocess.DEVNULL,
        env=processes.environment(TERM="xterm-256color", COLUMNS="200", **env),
        **streams,
    )
    os.close(terminal)
    processes.started.append(process)
    written = b""
    with suppress(OSError):  # a terminal's way to say that it ended
        while chunk := os.read(reading, 65536):
            written += chunk
    os.close(reading)
    other = process.stderr if stream == "stdout" else process.stdout
    assert other is not None
    return process.wait(60), other.read(), written


def tamper(db: Path, statement: str, *values: object) -> None:
    """Change a ledger's file behind its back, past the triggers that forbid it."""
    with closing(sqlite3.connect(db)) as file, file:
        found = "SELECT name, sql FROM sqlite_master WHERE type='trigger'"
        triggers = file.execute(found).fetchall()
        for name, _ in triggers:
            file.execute(f"DROP TRIGGER {name}")
        file.execute(statement, values)
        for _, definition in triggers:
            file.execute(definition)
