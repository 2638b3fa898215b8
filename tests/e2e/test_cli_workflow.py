"""Workflows from the command line: run, killed in a step, recovered, replayed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.driving import PROGRAM, InProcess
from turnledger.ledger import Ledger

FLOWS = """
import os, signal
from dataclasses import dataclass
import turnledger


@dataclass
class Order:
    customer: str
    euros: int


@turnledger.step(on_interrupt="ask")
def pay(euros: int) -> str:
    with open("paid.txt", "a") as file:
        file.write(f"{euros}\\n")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {euros}"


@turnledger.step
def note(text: str) -> str:
    return text + os.environ.get("CHANGED", "")


@turnledger.workflow("orders/pay")
def flow(order: Order) -> str:
    return note(order.customer + os.environ.get("CHANGED", "")) + ": " + pay(order.euros)


@turnledger.workflow("orders/later")
async def later(text: str) -> str:
    return note(text)
"""
INPUT = '{"customer": "acme", "euros": 5}'


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The workflows, in a module that the command finds."""
    name = f"flows_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    return f"{name}:flow"


def test_a_workflow_is_run_and_replayed(cli: InProcess, app: str) -> None:
    """Its input is JSON of its type; the replay performs nothing."""
    ran = cli("run", "--app", app, INPUT, "-o", "json")
    assert (ran.code, ran.json["output"]) == (0, "acme: paid 5")
    replayed = cli("replay", "@last", "--app", app, "-o", "json")
    assert (replayed.code, replayed.json["ok"]) == (0, True)
    assert Path("paid.txt").read_text() == "5\n"
    changed = cli("replay", "@last", "--app", app, CHANGED="!")
    assert changed.code == 6
    assert "step arguments changed" in changed.err


def test_text_and_async_workflows_work_too(cli: InProcess, app: str) -> None:
    """An input that is text is taken as it is."""
    ran = cli("run", "--app", app.replace(":flow", ":later"), "hello", "-o", "json")
    assert (ran.code, ran.json["output"]) == (0, "hello")


@pytest.mark.process
def test_a_killed_workflow_waits_for_a_decision(cli: InProcess, app: str) -> None:
    """SIGKILL in a step that asks: recover says so, and goes on with the decision."""
    env = {**os.environ, "TURNLEDGER_DB": str(cli.db), "DIE": "1"}
    killed = subprocess.run([PROGRAM, "run", "--app", app, INPUT], env=env, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert cli("recover", "--all", "--app", app).code == 8
    waits = cli("recover", "@last", "--app", app)
    assert waits.code == 8
    assert "pay#1" in waits.err
    assert cli("resolve", "@last", "pay#1", "--completed", '"paid by hand"').code == 0
    done = cli("recover", "--all", "--app", app, "-o", "jsonl")
    assert [one["output"] for one in done.lines] == ["acme: paid by hand"]
    assert Path("paid.txt").read_text() == "5\n"


@pytest.mark.process
def test_consent_repeats_a_step(cli: InProcess, app: str) -> None:
    """recover --yes performs the step in doubt again, and says so."""
    env = {**os.environ, "TURNLEDGER_DB": str(cli.db), "DIE": "1"}
    subprocess.run([PROGRAM, "run", "--app", app, INPUT], env=env, capture_output=True)
    done = cli("recover", "@last", "--app", app, "--yes")
    assert done.code == 0
    assert "pay (pay#1) was run again, attempt 2" in done.err
    assert Path("paid.txt").read_text() == "5\n5\n"


def test_options_of_agents_are_refused(cli: InProcess, app: str) -> None:
    """A workflow has no turns and no prompt."""
    assert cli("run", "--app", app, INPUT).code == 0
    for more in (["--max-turns", "3"], ["--recorded-prompt"]):
        refused = cli("recover", "@last", "--app", app, *more)
        assert refused.code == 2
        assert "workflow" in refused.err


def test_a_wrong_input_begins_no_run(cli: InProcess, app: str) -> None:
    """The error names the field."""
    refused = cli("run", "--app", app, '{"customer": "acme"}')
    assert refused.code == 2
    assert "euros" in refused.err
    with Ledger.open(cli.db) as ledger:
        assert list(ledger.runs()) == []


def test_a_workflow_recovers_its_own_runs_only(cli: InProcess, app: str) -> None:
    """Agents and workflows share a ledger."""
    assert cli("run", "--app", app, INPUT).code == 0
    refused = cli("recover", "@last", "--app", app.replace(":flow", ":later"))
    assert refused.code != 0
    assert "orders/pay" in refused.err
