"""Types for TypeScript: they are those of the document, and the compiler finds a wrong field."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.servers.ledger_server import LedgerServer
from tests.soaking import ROOT
from turnledger.ledger import Ledger

FOLDER = ROOT / "clients" / "typescript"
DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
EXAMPLE = (FOLDER / "example.ts").read_text()
# What is written instead of what; the first is right.
WRONG = {
    "error_message": "error_message",
    "${item.data.error_message}": "${item.data.error_mesage}",
    'case "tool_call.failed"': 'case "tool_call.fails"',
    "tags:": "tag:",
    'customer: "acme"': "customer: 1",
}


def test_the_types_are_made_from_this_document() -> None:
    """Its hash stands in the first line, so that no node is needed to see it."""
    first = (FOLDER / "turnledger.d.ts").read_text().partition("\n")[0]
    expected = sha256(DOCUMENT.read_bytes()).hexdigest()
    assert first.rpartition(" ")[2] == expected, "Run `make typescript`."


def install(folder: Path) -> None:
    """Have the compiler and the types in a folder."""
    for name in ("package.json", "package-lock.json", "turnledger.d.ts"):
        shutil.copy(FOLDER / name, folder)
    said(folder, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")


def said(folder: Path, *command: str, **more: str) -> str:
    """What a command prints that must end well."""
    environment = {**os.environ, **more}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wrong_files(folder: Path) -> set[str]:
    """The TypeScript files of a folder in which the compiler finds something."""
    names = sorted(path.name for path in folder.glob("*[0-9].ts"))
    command = ["node_modules/.bin/tsc", "--strict", "--noEmit", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return set(re.findall(r"^(\S+)\(\d+,\d+\): error TS", done.stdout, re.MULTILINE))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="node is not on this machine")
def test_the_compiler_knows_each_event(tmp_path: Path) -> None:
    """A switch on `type` compiles strictly; one with a wrong field or type does not."""
    install(tmp_path)
    for number, (right, wrong) in enumerate(WRONG.items()):
        assert right in EXAMPLE
        (tmp_path / f"example{number}.ts").write_text(EXAMPLE.replace(right, wrong))
    assert wrong_files(tmp_path) == {f"example{number}.ts" for number in range(1, len(WRONG))}
    generated = subprocess.run(
        ["node_modules/.bin/openapi-typescript", str(DOCUMENT), "--default-non-nullable=false"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    committed = (FOLDER / "turnledger.d.ts").read_text().partition("\n")[2]
    assert generated.stdout == committed, "Run `make typescript`."


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="node is not on this machine")
def test_the_program_of_the_how_to_appends_and_reads(tmp_path: Path) -> None:
    """It compiles strictly, and what it sends again is recorded once."""
    install(tmp_path)
    with Ledger.open("memory://") as ledger, LedgerServer(ledger) as server:
        program = (FOLDER / "append.ts").read_text()
        (tmp_path / "append.ts").write_text(program.replace("http://127.0.0.1:8321", server.url))
        options = ("--strict", "--target", "es2022", "--module", "es2022")
        tsc = "node_modules/.bin/tsc"
        said(tmp_path, tsc, *options, "--moduleResolution", "bundler", "append.ts")
        (tmp_path / "append.js").rename(tmp_path / "append.mjs")
        out = said(tmp_path, "node", "append.mjs", TURNLEDGER_TOKEN=server.token("writer"))
    assert out.splitlines() == [
        "sent: version 2, duplicate: false",
        "sent again: version 2, duplicate: true",
        "1 run.started",
        "2 custom",
    ]
