"""`pending`, `resolve --approve | --deny | --edit` and `recover`, on a run that waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, InProcess, Processes, hold
from tests.e2e.test_cli_recover import APP, MODULE, ROOT
from turnledger.ledger import ApprovalDecided, Ledger, new_run_id
from turnledger.projections import state_at


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agent pays; each payment needs approval."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENT_BANK", str(tmp_path / "bank"))
    monkeypatch.setenv("AGENT_APPROVAL", "1")
    return tmp_path / "bank"


@pytest.fixture
def run(db: Path) -> UUID:
    """A run that another process began, and that waits for approval of its first payment."""
    run_id = new_run_id()
    Ledger.open(db).close()
    begun = subprocess.run(
        [sys.executable, "-m", MODULE, db, str(run_id), "5"],
        env=dict(os.environ),
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert f"turnledger resolve {run_id} p1 --approve" in begun.stderr
    return run_id


def decisions(cli: InProcess | Processes, run: UUID) -> list[ApprovalDecided]:
    with Ledger.open(cli.db) as ledger:
        events = [record.event for record in ledger.read(run)]
    return [event for event in events if isinstance(event, ApprovalDecided)]


def test_payments_are_approved_denied_and_edited_from_the_command_line(
    processes: Processes, run: UUID, bank: Path
) -> None:
    """Each in its turn; what was decided is what happens, and who decided is on record."""
    assert processes("recover", run, "--app", APP).code == 8
    (shown,) = processes("pending", "-o", "json").json
    assert (shown["call_id"], shown["status"]) == ("p1", "needs approval")
    assert (shown["run_status"], shown["decision"]) == ("waiting", None)
    assert "needs approval" in processes("pending", run).out
    done = processes("resolve", run, "p1", "--edit", '{"amount": 1}', "--by", "ann")
    assert (done.code, done.out) == (0, "")
    assert "call p1 (pay): edited" in done.err
    (shown,) = processes("pending", run, "-o", "json").json
    assert (shown["decision"], shown["arguments"]) == ("edited", '{"amount":1}')
    waits = processes("recover", run, "--app", APP)
    assert waits.code == 8
    assert f"turnledger resolve {run} p2 --approve" in waits.err
    assert bank.read_text() == "p1\n"
    denied = processes("resolve", run, "p2", "--deny", "Not today.", "--by", "bob")
    assert denied.code == 0
    assert processes("recover", run, "--app", APP).code == 0
    assert bank.read_text() == "p1\n"
    found = [(one.decision, one.decided_by) for one in decisions(processes, run)]
    assert found == [("edited", "ann"), ("denied", "bob")]
    with Ledger.open(processes.db) as ledger:
        first, second = state_at(ledger, run).tools.calls
    assert (first.result or "").endswith("Paid 1.")
    assert (second.status, second.result) == ("failed", "Not today.")


def test_recover_all_takes_a_run_after_its_approval(cli: InProcess, run: UUID, bank: Path) -> None:
    """Before it, the run is left out; a payment that waits is no failure of the command."""
    assert cli("recover", "--all", "--app", APP, "-o", "json").json == []
    assert cli("resolve", run, "p1", "--approve").code == 0
    assert cli("recover", "--all", "--app", APP).code == 8  # for the next payment
    assert bank.read_text() == "p1\n"
    (decided,) = decisions(cli, run)
    assert decided.decided_by != ""


def test_a_decision_of_the_wrong_kind_names_the_right_options(cli: InProcess, run: UUID) -> None:
    """A call that needs approval is not in doubt, and one in doubt needs no approval."""
    for option in (("--completed", "1"), ("--failed", "x"), ("--retry",)):
        wrong = cli("resolve", run, "p1", *option)
        assert wrong.code == 1
        assert "--approve, --deny TEXT or --edit JSON" in wrong.err
    cli("resolve", run, "p1", "--approve")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_DIES", "p1")
        died = Processes(cli.db)("recover", run, "--app", APP)
    assert died.code == -signal.SIGKILL
    for option in (("--approve",), ("--deny", "x"), ("--edit", "{}")):
        wrong = cli("resolve", run, "p1", *option)
        assert wrong.code == 1
        assert "--completed JSON, --failed TEXT or --retry" in wrong.err
    assert len(decisions(cli, run)) == 1


def test_resolve_refuses_what_it_can_not_record(cli: InProcess, run: UUID) -> None:
    """2 for a wrong command line, 3 for no such call, 1 for arguments that do not fit."""
    for options in (("--approve", "--deny", "x"), ("--approve", "--retry"), ("--edit",)):
        assert cli("resolve", run, "p1", *options).code == 2, options
    assert cli("resolve", NOBODY, "p1", "--approve").code == 3
    missing = cli("resolve", run, "p9", "--approve")
    assert (missing.code, "Calls that need approval: p1." in missing.err) == (3, True)
    for wrong, why in (
        ('{"amount": "all"}', "not of type 'integer'"),
        ('{"sum": 1}', "'amount' is a required property"),
        ("[]", "expected a JSON object"),
        ("{", "not JSON"),
    ):
        refused = cli("resolve", run, "p1", "--edit", wrong)
        assert (refused.code, why in refused.err) == (1, True), refused.err
    assert decisions(cli, run) == []


def test_a_call_that_changed_since_it_was_shown_is_not_decided_about(
    cli: InProcess, run: UUID
) -> None:
    """4, with what it is now."""
    (shown,) = cli("pending", run, "-o", "json").json
    assert cli("resolve", run, "p1", "--deny", "No.", "--at", shown["version"]).code == 0
    late = cli("resolve", run, "p1", "--approve", "--at", shown["version"])
    assert (late.code, "denied now" in late.err) == (4, True)


def test_a_run_that_a_worker_has_is_left_alone(processes: Processes, run: UUID) -> None:
    """7: it is about to wait, or acts by an earlier decision."""
    hold(processes, run)
    assert processes("resolve", run, "p1", "--approve").code == 7
