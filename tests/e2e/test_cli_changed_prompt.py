"""`recover` after another prompt was deployed: the difference, and the three ways on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import InProcess
from turnledger.ledger import EvaluationStarted, Ledger, RunResumed, new_run_id

ROOT = Path(__file__).parents[2]
MODULE = "tests.e2e.agent_for_cli"
APP, EDITED, DESCRIBED = f"{MODULE}:loop", f"{MODULE}:edited", f"{MODULE}:described"


@pytest.fixture
def killed(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """A run whose process was killed within its second call, which is run again."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENT_BANK", str(tmp_path / "bank"))
    monkeypatch.setenv("AGENT_POLICY", "retry")
    run_id = new_run_id()
    Ledger.open(db).close()
    done = subprocess.run(
        [sys.executable, "-m", MODULE, db, str(run_id), "5"],
        env={**os.environ, "AGENT_DIES": "p2"},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    return run_id


def test_the_difference_is_shown_and_nothing_is_written(
    cli: InProcess, db: Path, killed: UUID
) -> None:
    """The diff of the text, without escape codes, the ways on, and a run as it was."""
    with Ledger.open(db) as ledger:
        before = ledger.head(killed)
    done = cli("recover", killed, "--app", EDITED)
    assert done.code == 1
    assert "\n Pay 5.\n+No \\x1b[31mcash." in done.err
    for words in ("--recorded-prompt", "--accept-prompt", f"turnledger abandon {killed}"):
        assert words in done.err
    told = json.loads(cli("recover", killed, "--app", EDITED, "-o", "json").err)
    assert (told["error"], told["run_id"]) == ("PromptMismatch", str(killed))
    assert "+No" in told["difference"]["text"]
    refused = cli("recover", killed, "--app", DESCRIBED, "--recorded-prompt")
    assert refused.code == 1
    assert '-    "description": "Pay."' in refused.err
    assert "can't go on with its recorded text" in refused.err
    assert cli("recover", "--all", "--app", EDITED).code == 1
    with Ledger.open(db) as ledger:
        assert ledger.head(killed) == before


@pytest.mark.parametrize(
    ("option", "choice", "by"),
    [("--recorded-prompt", "recorded", "Ana"), ("--accept-prompt", "accepted", "Ben")],
)
def test_a_run_goes_on_as_chosen(
    cli: InProcess, db: Path, tmp_path: Path, killed: UUID, option: str, choice: str, by: str
) -> None:
    """No payment is made twice; who chose is recorded; a replay says what it did not compare."""
    done = cli("recover", killed, "--app", EDITED, option, "--by", by)
    assert (done.code, "Paid" in done.out) == (0, True), done.err
    assert (tmp_path / "bank").read_text() == "p1\np2\n"
    with Ledger.open(db) as ledger:
        records = list(ledger.read(killed))
    (resumed,) = (r.event for r in records if isinstance(r.event, RunResumed))
    assert (resumed.prompt, resumed.prompt_by) == (choice, by)
    begun = [r.event for r in records if isinstance(r.event, EvaluationStarted)]
    assert [one.accepted_by for one in begun] == ([""] if choice == "recorded" else ["", "Ben"])
    found = cli("replay", killed, "--app", EDITED)
    assert (found.code, "1 evaluations that were begun under another prompt" in found.out) == (
        0,
        True,
    ), found.err
    told = cli("replay", killed, "--app", EDITED, "-o", "json").json
    assert told["evaluations_not_compared"] == [begun[0].evaluation_id]
    assert cli("replay", killed, "--app", APP).code == (0 if choice == "recorded" else 6)


def test_a_prompt_is_chosen_for_one_run(cli: InProcess, killed: UUID) -> None:
    """Not for all of them, and not in two ways: the command is refused as it was written."""
    for given in (
        ("--all", "--accept-prompt"),
        ("--all", "--recorded-prompt"),
        (str(killed), "--accept-prompt", "--recorded-prompt"),
    ):
        assert cli("recover", *given, "--app", EDITED).code == 2
