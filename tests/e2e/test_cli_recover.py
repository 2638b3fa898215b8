"""`pending`, `resolve`, `recover` and `abandon`, on runs whose process was killed within a tool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, PROGRAM, InProcess, Processes, hold, tamper
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    ResourceSnapshotted,
    RunStarted,
    SliceChange,
    ToolCallDecided,
    new_run_id,
)
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.projections import state_at
from turnledger.runtime import LedgerCheckpointBackend

ROOT = Path(__file__).parents[2]
MODULE = "tests.e2e.agent_for_cli"
APP = f"{MODULE}:loop"


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agents pay; the command finds them from the project's folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENT_BANK", str(tmp_path / "bank"))
    return tmp_path / "bank"


@pytest.fixture
def killed(db: Path) -> Callable[..., UUID]:
    """Makes runs whose process was killed within a call."""

    def kill(call: str = "p2", amount: int = 5, policy: str = "ask") -> UUID:
        run_id = new_run_id()
        Ledger.open(db).close()
        done = subprocess.run(
            [sys.executable, "-m", MODULE, db, str(run_id), str(amount)],
            env={**os.environ, "AGENT_DIES": call, "AGENT_POLICY": policy},
            timeout=60,
        )
        assert done.returncode == -signal.SIGKILL
        return run_id

    return kill


def status(db: Path, run_id: UUID) -> tuple[str, str | None]:
    """How a run stands, and who has it."""
    with Ledger.open(db) as ledger:
        return ledger.run(run_id).status, ledger.worker_of(run_id)


def test_recover_does_not_pay_again_when_the_record_of_a_payment_is_lost(
    cli: InProcess, db: Path, bank: Path, killed: Callable[..., UUID]
) -> None:
    """The index knows that there was more: exit code 5, also after rebuild-index."""
    run = killed()
    with Ledger.open(db) as ledger:
        last = ledger.head(run)
    paid = bank.read_text()
    tamper(db, "DELETE FROM events WHERE run_id=? AND version=?", str(run), last)
    for _ in range(2):
        done = cli("recover", run, "--app", APP)
        assert (done.code, "index has version" in done.err) == (5, True)
        assert cli("recover", "--all", "--app", APP).code == 5
        assert cli("rebuild-index").code == 5
    assert bank.read_text() == paid
    assert cli("rebuild-index", "--accept-loss", run).code == 0
    assert cli("recover", "--all", "--app", APP).code == 0
    assert "parked" in cli("recover", run, "--app", APP).err
    assert bank.read_text() == paid


# --- pending ---------------------------------------------------------------------------


def test_pending_shows_the_calls_that_have_not_ended(
    cli: InProcess, killed: Callable[..., UUID]
) -> None:
    """Of one run or of all: which call, of which tool, how far, and with what."""
    run = killed()
    with cli.ledger() as ledger:
        head = ledger.head(run)
        started = ledger.record(run, head).recorded_at
    shown = {
        "run_id": str(run),
        "run_status": "running",
        "version": head,
        "call_id": "p2",
        "name": "pay",
        "kind": "tool",
        "is_step": False,
        "parent": "",
        "arguments": '{"amount": 3}',
        "status": "started",
        "attempts": 1,
        "started_at": moment_text(to_micros(started)),
        "decision": None,
    }
    assert cli("pending", "-o", "json").json == [shown]
    assert cli("pending", run, "-o", "jsonl").lines == [shown]
    table = cli("pending").out
    assert all(word in table for word in (str(run), "p2", "pay", "started"))
    assert cli("pending", NOBODY).code == 3
    assert cli("pending", "nonsense").code == 3


def test_pending_is_empty_where_nothing_is(cli: InProcess) -> None:
    """A ledger without open calls has none to show."""
    with cli.ledger() as ledger:
        ledger.append(new_run_id(), RunStarted(), NEW)
    done = cli("pending", "-o", "json")
    assert (done.code, done.json) == (0, [])


# --- recover ---------------------------------------------------------------------------


def test_recover_waits_for_a_decision_and_goes_on_with_it(
    cli: InProcess, db: Path, killed: Callable[..., UUID], bank: Path
) -> None:
    """8 until a person has decided; then the answer, and nothing is paid twice."""
    run = killed()
    for _ in range(4):
        asked = cli("recover", run, "--app", APP)
        assert asked.code == 8
        assert "turnledger resolve" in asked.err
    assert cli("pending", run, "-o", "json").json[0]["run_status"] == "waiting"
    decided = cli("resolve", run, "p2", "--completed", '{"paid": 3}', "--by", "ann")
    assert (decided.code, decided.out) == (0, "")
    assert f"turnledger recover {run}" in decided.err
    assert cli("pending", run, "-o", "json").json[0]["decision"] == "completed"
    done = cli("recover", run, "--app", APP, "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "run_id": str(run),
        "text": "Paid \x1b[31mall\x1b[0m of it.",
        "output": None,
    }
    assert bank.read_text() == "p1\n"
    assert status(db, run) == ("completed", None)
    with Ledger.open(db) as ledger:
        (decision,) = [r.event for r in ledger.read(run) if r.tag == "tool_call.decided"]
    assert (decision.value, decision.decided_by) == ({"paid": 3}, "ann")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("decision", "paid", "result"),
    [
        (("--retry",), "p1\np2\n", "Paid 3."),
        (("--failed", "the bank refused"), "p1\n", "the bank refused"),
        (("--completed", '"yes"'), "p1\n", '"yes"'),
    ],
)
def test_a_decision_is_what_becomes_of_the_call(
    cli: InProcess,
    db: Path,
    killed: Callable[..., UUID],
    bank: Path,
    decision: tuple[str, ...],
    paid: str,
    result: str,
) -> None:
    """It is run again, or the model is told what the person said."""
    run = killed()
    assert cli("recover", run, "--app", APP).code == 8
    assert cli("resolve", run, "p2", *decision).code == 0
    table = cli("recover", run, "--app", APP)
    assert table.code == 0
    assert "completed" in table.out
    assert "\x1b" not in table.out
    assert bank.read_text() == paid
    with Ledger.open(db) as ledger:
        calls = {call.call_id: call for call in state_at(ledger, run).tools.calls}
    assert result in (calls["p2"].result or "")


def test_recover_refuses(cli: InProcess, db: Path, killed: Callable[..., UUID]) -> None:
    """2 for a wrong command line or app, 3 for no such run, 1 for one that is over."""
    run = killed("p1")
    for wrong in (
        ("recover", "--app", APP),
        ("recover", run),
        ("recover", run, "--all", "--app", APP),
        ("recover", "@nonsense", "--app", APP),
        *(
            ("recover", run, "--app", app)
            for app in ("nowhere:loop", MODULE, f"{MODULE}:nothing", f"{MODULE}:no_loop", ":x")
        ),
    ):
        done = cli(*wrong)
        assert (done.code, done.out) == (2, ""), wrong
    assert cli("recover", NOBODY, "--app", APP).code == 3
    assert cli("abandon", run).code == 0
    assert cli("recover", run, "--app", APP).code == 3
    assert status(db, run) == ("abandoned", None)


def test_recover_all_recovers_what_can_be(
    cli: InProcess, db: Path, killed: Callable[..., UUID], bank: Path
) -> None:
    """Each is said as it is done; one that can't be does not stop the others."""
    asks, good = killed(), killed("p1", policy="retry")
    broken = killed("p1", 13, policy="retry")
    assert cli("recover", asks, "--app", APP).code == 8  # waits, and is left out from now on
    done = cli(
        "recover", "--all", "--app", APP, "-o", "json", AGENT_POLICY="retry", AGENT_BROKEN="1"
    )
    assert done.code == 1
    assert [one["run_id"] for one in done.json] == [str(good)]
    assert f"{broken}: ZeroDivisionError: thirteen" in done.err
    assert str(asks) not in done.err
    again = cli("recover", "--all", "--app", APP, AGENT_POLICY="retry")
    assert (again.code, str(broken) in again.out) == (0, True)
    nothing = cli("recover", "--all", "--app", APP, "-o", "json")
    assert (nothing.code, nothing.json) == (0, [])
    assert bank.read_text().count("p2") == 2
    assert status(db, asks) == ("waiting", None)


def test_recover_all_ends_with_the_highest_code(
    cli: InProcess, killed: Callable[..., UUID]
) -> None:
    """A run that has to wait makes it 8."""
    killed()
    assert cli("recover", "--all", "--app", APP).code == 8


def test_another_workers_run_is_left_alone(
    processes: Processes, killed: Callable[..., UUID]
) -> None:
    """7 for recover, abandon and resolve of a call that a worker is running; nothing is changed."""
    run = killed()
    hold(processes, run)
    with Ledger.open(processes.db) as ledger:
        head = ledger.head(run)
    assert processes("recover", run, "--app", APP).code == 7
    assert processes("abandon", run).code == 7
    assert processes("resolve", run, "p2", "--retry").code == 7
    all_of_them = processes("recover", "--all", "--app", APP, "-o", "json")
    assert (all_of_them.code, all_of_them.json) == (0, [])
    with Ledger.open(processes.db) as ledger:
        assert ledger.head(run) == head


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_a_resumable_run(
    processes: Processes, killed: Callable[..., UUID], bank: Path, number: signal.Signals
) -> None:
    """Within a tool: 143 or 130, the lease is given back, and the run can be recovered."""
    run = killed("p1", policy="retry")
    os.environ["AGENT_POLICY"], os.environ["AGENT_WAITS"] = "retry", "p2"
    try:
        worker = processes.start(PROGRAM, "recover", run, "--app", APP, cwd=ROOT)
    finally:
        del os.environ["AGENT_POLICY"], os.environ["AGENT_WAITS"]
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"waits\n"
    assert status(processes.db, run)[1] is not None
    worker.send_signal(number)
    assert worker.wait(timeout=30) == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert status(processes.db, run) == ("running", None)
    done = processes("recover", run, "--app", APP, AGENT_POLICY="retry")
    assert done.code == 0
    assert bank.read_text() == "p1\np2\n"


# --- resolve and abandon ---------------------------------------------------------------


def test_resolve_refuses(cli: InProcess, killed: Callable[..., UUID]) -> None:
    """2 for a wrong command line, 3 for no such run or call; nothing is recorded."""
    run = killed()
    with cli.ledger() as ledger:
        head = ledger.head(run)
    for options in ((), ("--retry", "--failed", "x"), ("--completed", "{no"), ("--retry", "--no")):
        assert cli("resolve", run, "p2", *options).code == 2, options
    assert cli("resolve", NOBODY, "p2", "--retry").code == 3
    for call in ("p1", "p3"):
        done = cli("resolve", run, call, "--retry")
        assert done.code == 3
        assert "p2" in done.err
    with cli.ledger() as ledger:
        assert ledger.head(run) == head


def test_resolve_names_the_call_and_its_attempt(
    cli: InProcess, killed: Callable[..., UUID]
) -> None:
    """The decision is about the attempt in doubt, and says so."""
    run = killed()
    done = cli("resolve", run, "p2", "--retry")
    assert "call p2 (pay), attempt 1: retry" in done.err
    with cli.ledger() as ledger:
        (decision,) = [r.event for r in ledger.read(run) if isinstance(r.event, ToolCallDecided)]
    assert (decision.call_id, decision.attempt) == ("p2", 1)


def test_resolve_refuses_a_call_that_changed_since_it_was_shown(
    cli: InProcess, killed: Callable[..., UUID], bank: Path
) -> None:
    """4, with what it is now; a comment that was appended since does not matter."""
    run = killed()
    (shown,) = cli("pending", run, "-o", "json").json
    version = shown["version"]
    with cli.ledger() as ledger:
        ledger.append(run, CustomEvent(kind="tests.note"), ANY)
    assert cli("resolve", run, "p2", "--retry", "--at", version).code == 0
    late = cli("resolve", run, "p2", "--completed", "1", "--at", version)
    assert (late.code, "attempt 1 and decided (retry) now" in late.err) == (4, True)
    assert cli("recover", run, "--app", APP).code == 0
    gone = cli("resolve", run, "p2", "--retry", "--at", version)
    assert (gone.code, "completed in attempt 2 now" in gone.err) == (4, True)
    assert bank.read_text() == "p1\np2\n"


def test_resolve_carries_what_the_tool_would_have_said_and_changed(
    cli: InProcess, killed: Callable[..., UUID]
) -> None:
    """--text, --value and --change are in the decision; what is not carried is named."""
    run = killed()
    with cli.ledger() as ledger:
        ledger.append(run, ResourceSnapshotted(resource="files", files={}), ANY)
    change = '{"slice": "Paid", "event_type": "Paid", "operation": "append", "payload": {"n": 3}}'
    given = ("--text", "Paid 3.", "--value", '{"paid": 3}', "--change", change)
    for wrong in (
        ("--retry", *given),
        ("--completed", "1", *given),
        ("--completed", "--change", "{}"),
    ):
        assert cli("resolve", run, "p2", *wrong).code == 2
    done = cli("resolve", run, "p2", "--completed", *given)
    assert done.code == 0
    assert "Not carried: what the call changed in files" in done.err
    assert "has not used the slice Paid" in done.err
    with cli.ledger() as ledger:
        (decision,) = [r.event for r in ledger.read(run) if isinstance(r.event, ToolCallDecided)]
    assert (decision.text, decision.value) == ("Paid 3.", {"paid": 3})
    assert decision.changes == (SliceChange("Paid", "Paid", "append", {"n": 3}),)
    assert cli("recover", run, "--app", APP).code == 0
    assert "Paid 3." in cli("messages", run).out
    assert cli("state", run, "-o", "json").json["slices"]["Paid"] == [{"n": 3}]
    assert cli("replay", run, "--app", APP).code == 0


def test_resolve_refuses_a_run_that_a_worker_has(
    cli: InProcess, killed: Callable[..., UUID]
) -> None:
    """7: the worker goes by what is on record already, and the decision would be lost."""
    run = killed()
    assert cli("recover", run, "--app", APP).code == 8
    with cli.ledger() as ledger, ledger.claim(run, worker="other"):
        head = ledger.head(run)
        assert cli("resolve", run, "p2", "--retry").code == 7
        assert ledger.head(run) == head


def test_a_refused_yes_leaves_no_consent(
    cli: InProcess, killed: Callable[..., UUID], bank: Path
) -> None:
    """No app, a claimed run or a prompt that fails: the next `recover --all` does not pay."""
    run = killed(amount=13)
    assert cli("recover", run, "--app", "tests.nowhere:loop", "--yes").code == 2
    assert cli("recover", run, "--app", f"{MODULE}:no_loop", "--yes").code == 2
    with pytest.raises(ZeroDivisionError):
        cli("recover", run, "--app", APP, "--yes", AGENT_BROKEN="1")
    with cli.ledger() as ledger, ledger.claim(run, worker="other"):
        assert cli("recover", run, "--app", APP, "--yes").code == 7
    assert cli("pending", run, "-o", "json").json[0]["decision"] is None
    assert cli("recover", "--all", "--app", APP).code == 8
    assert bank.read_text() == "p1\n"
    assert cli("recover", run, "--app", APP, "--yes").code == 0
    assert bank.read_text() == "p1\np2\n"


def test_abandon_gives_a_run_up(cli: InProcess, db: Path, killed: Callable[..., UUID]) -> None:
    """Its events stay, its checkpoint counts no more, and a second time is harmless."""
    run = killed()
    with Ledger.open(db) as ledger:
        before = ledger.head(run)
    done = cli("abandon", run, "--reason", "too dear")
    assert (done.code, done.out) == (0, "")
    with Ledger.open(db) as ledger:
        assert ledger.head(run) > before
        assert LedgerCheckpointBackend(ledger).load(run) is None
        reasons = [r.event.reason for r in ledger.read(run) if r.tag == "run.abandoned"]  # type: ignore[union-attr]
        assert reasons == ["too dear"]
        after = ledger.head(run)
    again = cli("abandon", run)
    assert (again.code, "already" in again.err) == (0, True)
    assert cli("abandon", NOBODY).code == 3
    assert cli("recover", "--all", "--app", APP, "-o", "json").json == []
    with Ledger.open(db) as ledger:
        assert ledger.head(run) == after
