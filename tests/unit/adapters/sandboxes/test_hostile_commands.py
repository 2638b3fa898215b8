"""Hostile commands in real sandboxes: contained, ended in time, and nothing is left behind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from tests.sandboxes import sandboxed_processes, working_runner
from tests.unit.adapters.sandboxes.hostile import COMMON, MORE, Hostile
from turnledger.runtime import ResourceSnapshotError, SnapshotableFilesystem
from turnledger.runtime.workspace import LIMITS, SandboxCommand

pytestmark = pytest.mark.process


class Host(NamedTuple):
    """What a command must not reach: a file, a port, a socket, a process, an environment."""

    secret: Path
    port: int
    token: str


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    token = f"token-{uuid4()}"
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    monkeypatch.setenv("SECRET_OF_THE_HOST", token)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0{token}")
        local.listen()
        yield Host(secret, server.getsockname()[1], token)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*")}


def check_contained(runner: str, hostile: Hostile, host: Host, tmp_path: Path) -> None:
    works = working_runner(runner)
    files = SnapshotableFilesystem(tmp_path / "workspace")
    files.root.mkdir()
    (files.root / "kept.txt").write_text("kept")
    before = files.snapshot()
    names = {"SECRET": host.secret, "PORT": host.port, "PID": os.getpid(), "TOKEN": host.token}
    text = hostile.command
    for name, value in names.items():
        text = text.replace(f"@{name}", str(value))
    if hostile.is_python:
        command = SandboxCommand(("python3", "-B", "-"), text, hostile.seconds)
    else:
        command = SandboxCommand(("sh", "-c", text), "", hostile.seconds)
    null = os.stat("/dev/null").st_mode

    outcome = works.run(files.root, command)

    assert outcome.exit_code != 42, outcome
    # In a container the kernel ends one of its processes, and the command goes on.
    stopped = "" if (runner, hostile.stopped) == ("podman", "memory") else hostile.stopped
    assert stopped in outcome.stopped, outcome
    assert bool(outcome.stopped) == bool(stopped), outcome
    assert len(outcome.stdout) + len(outcome.stderr) <= LIMITS.output_bytes
    assert sandboxed_processes(files.root) == []
    assert host.secret.read_text() == "secret"
    assert os.stat("/dev/null").st_mode == null
    folders = [tmp_path, Path("/"), Path("/tmp"), Path("/dev/shm"), Path("/usr/bin"), Path("/etc")]
    assert [folder for folder in folders if (folder / host.token).exists()] == []
    with suppress(ResourceSnapshotError):  # the loop makes that a failed call
        files.snapshot(before.files)
    files.restore(before)
    assert contents(files.root) == {str(files.root / "kept.txt"): b"kept"}


@pytest.mark.parametrize("hostile", COMMON, ids=lambda one: one.name)
def test_a_hostile_command_is_contained(hostile: Hostile, host: Host, tmp_path: Path) -> None:
    """It reaches nothing of the host, ends in time, and its files can be undone."""
    check_contained("bubblewrap", hostile, host, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("hostile", MORE, ids=lambda one: one.name)
def test_more_hostile_commands_are_contained(hostile: Hostile, host: Host, tmp_path: Path) -> None:
    """The same, for what takes longer or is tried less often."""
    check_contained("bubblewrap", hostile, host, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("hostile", [*COMMON, *MORE], ids=lambda one: one.name)
def test_podman_contains_them_too(hostile: Hostile, host: Host, tmp_path: Path) -> None:
    """In a container, with limits of its own."""
    check_contained("podman", hostile, host, tmp_path)
