"""File names on the command line: they can't act on a terminal, nor look like a message."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conformance.samples import note
from tests.e2e.driving import InProcess
from turnledger.ledger import ANY, Ledger, new_run_id

# An escape sequence, a line break that forges a message, a bell, and bytes that are not UTF-8.
EVIL = "a\x1b[31m\nError: forged\r\x07\u202e" + os.fsdecode(b"\xff") + "z"
RUN = new_run_id()


def commands(name: str) -> dict[str, list[str]]:
    """Commands that are given a file of this name, which does not exist, or is no such file."""
    return {
        "append file": ["append", str(RUN), name, "--expect", "any"],
        "append blob": ["append", str(RUN), "-", "--expect", "any", "--blob", name],
        "another db": ["--db", name, "runs"],
        "another db, by url": ["--db", f"sqlite:///{name}", "runs"],
        "db after the command": ["runs", f"--db={name}"],
        "export": ["export", "--to", f"missing/{name}"],
        "import": ["import", name],
        "import transcripts": ["import", "--format", "gemini", name],
        "redactor": ["--redactor", name, "runs"],
        "seal": ["verify", "--seal", name],
        "backup": ["backup", f"missing/{name}"],
        "doctor": ["doctor", "--db", name],
        "run": ["log", name],
        "command": [name],
        "option": [f"--{name}"],
        "option of a command": ["runs", f"--{name}"],
        "choice": ["runs", "-o", name],
    }


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("command", sorted(commands("")))
def test_a_file_name_is_printed_on_one_line_without_escape_codes(
    command: str, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a file is called, an error or a table that names it shows the name written out."""
    monkeypatch.chdir(tmp_path)
    if exists:
        Path(EVIL).write_bytes(b"not what is expected")
    with Ledger.open(tmp_path / "runs.db") as ledger:
        ledger.append(RUN, note(), ANY)
    done = InProcess(tmp_path / "runs.db")(*commands(EVIL)[command])
    printed = done.out + done.err
    assert not set("\x1b\r\x07\u202e") & set(printed), printed
    assert not any(line.startswith("Error: forged") for line in printed.splitlines()), printed
    assert "\udcff" not in printed


def test_a_ledger_in_a_file_of_any_name_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is only written out, not changed: commands work, and JSON has it escaped."""
    monkeypatch.chdir(tmp_path)
    name = EVIL.replace(os.fsdecode(b"\xff"), "")
    run = InProcess(Path(name))
    event = json.dumps({"type": "custom", "data": {"kind": "a.b"}})
    assert run("append", str(RUN), "-", "--expect", "new", stdin=event).code == 0
    assert run("runs", "-o", "json").code == 0
    assert Path(name).exists()
    backup = run("backup", f"{name}.copy", "-o", "json")
    assert backup.code == 0, backup.err
    assert "\x1b" not in backup.out
    assert json.loads(backup.out)["path"].endswith(f"{name}.copy")
