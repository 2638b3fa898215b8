"""`log -f` and `tail -f`: events that other processes append, until the command is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import PROGRAM, InProcess, Processes, json_lines, note
from turnledger.ledger import ANY, NEW, CustomEvent, Ledger, RunStarted, new_run_id


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run with one event."""
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted()], NEW)
    return run


def line_of(process: subprocess.Popen[bytes]) -> Any:
    """The next line that a process prints, as soon as it is there."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_log_follows_what_other_processes_append(processes: Processes, run: UUID) -> None:
    """Each record comes as a line of its own while the follower goes on."""
    follower = processes.start(PROGRAM, "log", run, "-f", "-o", "jsonl")
    assert line_of(follower)["version"] == 1
    for version in (2, 3):
        append = processes("append", run, "--expect", version - 1, stdin=json_lines(note(version)))
        assert append.code == 0
        record = line_of(follower)
        assert (record["version"], record["data"]["data"]) == (version, version)
    follower.send_signal(signal.SIGINT)
    assert follower.communicate(timeout=60) == (b"", b"")
    assert follower.returncode == 0


def test_log_follows_only_its_run(processes: Processes, run: UUID) -> None:
    """Other runs' events are passed over, types that were not asked for too."""
    follower = processes.start(PROGRAM, "log", run, "-f", "-o", "jsonl", "--type", "custom")
    with Ledger.open(processes.db) as ledger:
        ledger.append(new_run_id(), [CustomEvent(kind="other.run")], NEW)
        ledger.append(run, [CustomEvent(kind="this.run")], ANY)
    assert line_of(follower)["data"] == {"kind": "this.run"}


def test_log_follows_until_a_version(processes: Processes, run: UUID) -> None:
    """With --until the follower ends by itself when that version is there."""
    follower = processes.start(PROGRAM, "log", run, "-f", "--until", 3)
    with Ledger.open(processes.db) as ledger:
        for version in (1, 2, 3):
            ledger.append(run, [CustomEvent(kind="a.b")], version)
    out, err = follower.communicate(timeout=60)
    assert (follower.returncode, err) == (0, b"")
    assert [int(line.split()[0]) for line in out.splitlines()] == [1, 2, 3]


def test_tail_follows_the_whole_ledger(processes: Processes, run: UUID) -> None:
    """`tail -f` shows every run's events in order, and ends cleanly on SIGTERM."""
    follower = processes.start(PROGRAM, "tail", "-f", "-o", "jsonl")
    seen = [line_of(follower)]
    with Ledger.open(processes.db) as ledger:
        for _ in range(3):
            ledger.append(new_run_id(), [CustomEvent(kind="a.b")], NEW)
            seen.append(line_of(follower))
    assert [r["position"] for r in seen] == [1, 2, 3, 4]
    follower.terminate()
    assert follower.communicate(timeout=60) == (b"", b"")
    assert follower.returncode == 0


@pytest.mark.parametrize("command", ["log", "tail"])
def test_a_follower_ends_when_its_reader_is_gone(
    processes: Processes, run: UUID, command: str
) -> None:
    """A closed pipe ends a follower at once, even if nothing more is ever appended."""
    arguments = [run] if command == "log" else []
    follower = processes.start(PROGRAM, command, *arguments, "-f", "-o", "jsonl")
    line_of(follower)
    assert follower.stdout is not None
    follower.stdout.close()
    assert follower.wait(60) == 0
    assert follower.stderr is not None
    assert follower.stderr.read() == b""


def test_a_broken_pipe_is_quiet(processes: Processes, run: UUID) -> None:
    """A closed pipe gives no traceback; the exit code is the shell's for it."""
    with Ledger.open(processes.db) as ledger:
        for _ in range(20):
            ledger.append(run, [CustomEvent(kind="a.b", data="x" * 1000)] * 500, ANY)
    for arguments in (("log", run), ("tail", "-o", "json"), ("export", run)):
        process = processes.start(PROGRAM, *arguments)
        assert process.stdout is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_ctrl_c_is_quiet(processes: Processes, run: UUID, tmp_path: Path) -> None:
    """An interrupted command says nothing, writes nothing and exits with 130."""
    fifo = tmp_path / "events"
    os.mkfifo(fifo)
    process = processes.start(PROGRAM, "append", run, fifo, "--expect", "any")
    with fifo.open("wb"):  # opens as soon as the command reads
        assert interrupted(process) == 130
    assert process.communicate() == (b"", b"")


def interrupted(process: subprocess.Popen[bytes]) -> int:
    """How it ends. Ctrl-C just before a read that blocks is noticed only with the next one."""
    for _ in range(12):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(5)
    raise AssertionError("it does not end")
