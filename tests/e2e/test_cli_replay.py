"""`replay`: runs again from their record alone, by folding and by the agent's own code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.agent_for_cli import Bill, loop
from tests.e2e.driving import NOBODY, InProcess, tamper
from turnledger.ledger import Ledger, new_run_id

ROOT = Path(__file__).parents[2]
APP = "tests.e2e.agent_for_cli:loop"


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agents pay; the command finds them from the project's folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENT_BANK", str(tmp_path / "bank"))
    return tmp_path / "bank"


@pytest.fixture
def run(db: Path) -> UUID:
    """A run of the agent that is over."""
    run_id = new_run_id()
    with Ledger.open(db) as ledger:
        loop(ledger).execute(Bill(), run_id=run_id)
    return run_id


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same agent with one line changed, as a program in another folder."""
    source = (ROOT / "tests/e2e/agent_for_cli.py").read_text()
    folder = tmp_path / "changed"
    folder.mkdir()
    said = source.replace('"Pay ${amount}."', '"Pay \\x1b[31m${amount} now."')
    (folder / "changed_agent.py").write_text(said)
    monkeypatch.syspath_prepend(str(folder))
    return "changed_agent:loop"


def test_a_run_is_folded_and_its_checkpoints_compared(cli: InProcess, run: UUID) -> None:
    """Without the agent's code: the digest of every checkpoint is that of the fold."""
    done = cli("replay", run)
    assert done.code == 0
    assert "as recorded" in done.out
    assert "events folded" in done.out
    found = cli("replay", run, "-o", "json").json
    with Ledger.open(cli.db) as ledger:
        assert found["version"] == ledger.head(run)
    assert (found["ok"], found["depth"], found["divergence"]) == (True, "fold", None)
    assert found["checkpoints_compared"] == 4
    assert found["checkpoints_not_compared"] == 0


def test_an_agents_code_runs_again_and_nobody_is_paid(
    cli: InProcess, run: UUID, bank: Path
) -> None:
    """No handler is called, and the ledger is not written to."""
    before = bank.read_text(), cli("log", run, "-o", "json").out
    done = cli("replay", run, "--app", APP)
    assert done.code == 0
    assert "code executed" in done.out
    assert (bank.read_text(), cli("log", run, "-o", "json").out) == before


def test_a_changed_agent_is_caught_at_its_event(cli: InProcess, run: UUID, changed: str) -> None:
    """Exit 6, with version, cause, advice and a diff that can't steer the terminal."""
    done = cli("replay", run, "--app", changed)
    assert done.code == 6
    assert "DIVERGED" in done.out
    assert "evaluation.started" in done.err
    assert "prompt text changed" in done.err
    assert "-Pay 5." in done.err
    assert "+Pay \\x1b[31m5 now." in done.err
    assert "\x1b" not in done.err + done.out
    found = cli("replay", run, "--app", changed, "-o", "json")
    assert found.code == 6
    divergence = found.json["divergence"]
    with Ledger.open(cli.db) as ledger:
        assert ledger.record(run, divergence["version"]).tag == "evaluation.started"
    assert found.json["version"] == divergence["version"] - 1
    assert divergence["advice"]


BAD = """\
def loop(ledger):
    return 1 / 0


def no_session(ledger):
    from tests.e2e.agent_for_cli import loop

    made = loop(ledger)
    made.create_session = lambda: 1 / 0
    return made


def no_prompt(ledger):
    from tests.e2e.agent_for_cli import loop

    def create_prompt(request):
        return 1 / 0

    made = loop(ledger)
    made.create_prompt = create_prompt
    return made
"""


@pytest.mark.parametrize(
    ("factory", "code", "place"),
    [
        ("loop", 1, "bad_agent.py:2 (loop)"),
        ("no_session", 1, "bad_agent.py:9 (<lambda>)"),
        ("no_prompt", 6, "bad_agent.py:17 (create_prompt)"),
    ],
)
def test_an_error_of_the_users_code_is_told_as_that(
    cli: InProcess,
    run: UUID,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    factory: str,
    code: int,
    place: str,
) -> None:
    """Where it was raised, with the user's lines and none of this package's."""
    (tmp_path / "bad_agent.py").write_text(BAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "bad_agent", raising=False)  # of a folder that is gone
    done = cli("replay", run, "--app", f"bad_agent:{factory}")
    assert done.code == code
    assert f"your code raised ZeroDivisionError at {place}\n" in done.err
    assert done.err.count("\n  File ") == 1
    assert "1 / 0" in done.err
    assert done.err.rstrip().endswith("ZeroDivisionError: division by zero")


def test_an_error_of_the_users_import_is_told_as_that(
    cli: InProcess, run: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that raises, or ends the program, when it is imported: where it does."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("raises", "1 / 0"), ("ends", "raise SystemExit(3)")):
        (tmp_path / f"{name}_on_import.py").write_text(text)
        done = cli("replay", run, "--app", f"{name}_on_import:loop")
        assert done.code == 2
        assert f"at {name}_on_import.py:1 (<module>)" in done.err
        assert done.err.count("\n  File ") == 1


def test_calls_of_another_model_before_a_recovery_are_listed(cli: InProcess, db: Path) -> None:
    """They are not compared, and the report says which they are."""
    run = new_run_id()
    with Ledger.open(db) as ledger:
        first = loop(ledger)
        adapter = first.loop_host.adapter
        adapter.model, send = "older", adapter.send

        def sending(payload: Any, how: Any) -> Any:
            if payload.turn == 2:
                raise KeyboardInterrupt
            return send(payload, how)

        adapter.send = sending  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            first.execute(Bill(), run_id=run)
        loop(ledger).recover(run)
        called = [r.version for r in ledger.read(run) if r.tag == "model.called"]
    done = cli("replay", run, "--app", APP)
    assert done.code == 0
    versions = ", ".join(map(str, called[:2]))
    assert f"calls of earlier attempts: scripted older (versions {versions})" in done.out
    found = cli("replay", run, "--app", APP, "-o", "json").json["taken_as_recorded"]
    assert [(one["version"], one["model"]) for one in found] == [(v, "older") for v in called[:2]]


def test_until_stops_where_it_is_told(cli: InProcess, run: UUID, changed: str) -> None:
    """What comes later is neither followed nor compared."""
    assert cli("replay", run, "--until", 3, "--app", APP, "-o", "json").json["version"] == 3
    assert cli("replay", run, "--until", 3, "-o", "json").json["version"] == 3
    with Ledger.open(cli.db) as ledger:
        first = next(r.version for r in ledger.read(run) if r.tag == "evaluation.started")
    assert cli("replay", run, "--until", first - 1, "--app", changed).code == 0
    assert cli("replay", run, "--until", first, "--app", changed).code == 6


def test_a_record_that_was_changed_is_no_divergence(cli: InProcess, run: UUID) -> None:
    """Exit 5: there is nothing to compare with."""
    with Ledger.open(cli.db) as ledger:
        version = next(r.version for r in ledger.read(run) if r.tag == "tool_call.completed")
    tamper(
        cli.db,
        "UPDATE events SET data=json_set(data, '$.value', 9) WHERE run_id=? AND version=?",
        str(run),
        version,
    )
    for app in ([], ["--app", APP]):
        done = cli("replay", run, *app)
        assert done.code == 5
        assert "was changed after it was recorded" in done.err


def test_what_can_not_be_replayed_is_told(cli: InProcess, run: UUID) -> None:
    """No such run, no such program, a factory without a loop, live parts without a program."""
    assert cli("replay", NOBODY).code == 3
    assert cli("replay", run, "--app", "no.such.module:loop").code == 2
    assert cli("replay", run, "--app", "tests.e2e.agent_for_cli:no_loop").code == 2
    assert cli("replay", run, "--live", "model").code == 2
    with Ledger.open(cli.db) as ledger:
        first = json.loads(ledger.record(run, 1).data)
    assert first["request_type"] == "Bill"


def test_chosen_parts_are_live_and_go_to_a_fork(cli: InProcess, run: UUID, bank: Path) -> None:
    """Only they touch the world; the run is as it was, and the fork can be compared with it."""
    before = cli("log", run, "-o", "json").out
    bank.unlink()
    done = cli("replay", run, "--app", APP, "--live", "tool:pay", "-o", "json")
    assert done.code == 0
    found = done.json
    assert (found["status"], found["answer"]) == ("completed", "Paid \x1b[31mall\x1b[0m of it.")
    assert [part["call_id"] for part in found["live"]] == ["p1", "p2"]
    assert {part["what"] for part in found["recorded"]} == {"model"}
    assert bank.read_text() == "p1\np2\n"
    assert cli("log", run, "-o", "json").out == before
    assert cli("compare", run, found["fork"]).code == 0
    shown = cli("replay", run, "--app", APP, "--live", "tool:pay")
    assert "tool:pay p1" in shown.out
    assert "\x1b" not in shown.out


def test_a_part_that_can_not_be_live_is_told(cli: InProcess, run: UUID) -> None:
    """An unknown tool with those that there are, and an invalid part."""
    unknown = cli("replay", run, "--app", APP, "--live", "tool:sing")
    assert unknown.code == 1
    assert "Its tools are: pay" in unknown.err
    assert cli("replay", run, "--app", APP, "--live", "everything").code == 1
