"""`make demo`: what a newcomer runs first, as they run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.py"


def run_demo(folder: Path, program: Path = DEMO) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


class Shown(NamedTuple):
    """The demo as it is, run to its end, and the empty folder that it was given."""

    done: subprocess.CompletedProcess[str]
    folder: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """One run of it, for all who only look at what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return Shown(run_demo(folder), folder)


def test_the_demo_runs_and_every_claim_holds(shown: Shown) -> None:
    """It ends with 0, prints a page without colours into a pipe, and leaves nothing behind."""
    done = shown.done
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("  ok   ") for line in lines) >= 15
    assert "FALSE" not in done.stdout
    assert len(lines) <= 50
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert list(shown.folder.iterdir()) == []


def test_the_demo_shows_a_kill_a_person_a_replay_a_server_and_tampering(shown: Shown) -> None:
    """One payment, though the agent was killed inside it, beside the file and over HTTP.

    The refusals are the ledger's words; over HTTP the lease keeps the killed worker's run.
    """
    out = shown.done.stdout
    assert "died of SIGKILL, after it had paid" in out
    assert "Error: Run R waits for a decision about call_2" in out
    assert "the answer is the undisturbed run's: Invoice 17 is paid: 120." in out
    assert "there was one payment, in all" in out
    assert "StaleEpochError: Run R is at epoch 3; an append with epoch 1 is refused." in out
    assert "IntegrityError: events are never changed or deleted" in out
    assert "the agent's code runs again: every step is the same" in out
    assert "First divergence at version 4, evaluation.started." in out
    assert "Likely cause: prompt text changed" in out
    assert "the digest should be" in out

    _, scene = out.split("5. A server has the ledger, and a worker only its URL and a token")
    claims = [line[7:] for line in scene.split("6. ")[0].splitlines() if line.startswith("  ok ")]
    assert claims[0].startswith("turnledger serve: http://127.0.0.1:")
    assert claims[1:] == [
        "it died of SIGKILL, after it had paid",
        "the run is still its own: the server can't see it die",
        "when its lease is up, another worker takes the run, and asks",
        "after the decision it goes on to the end",
        "there was one payment, in all",
        "the chain verifies, as the server has it",
    ]


def test_a_false_claim_ends_the_demo(tmp_path: Path) -> None:
    """A demo that can't fail shows nothing: an agent that pays again without asking is caught."""
    folder = tmp_path / "examples"
    folder.mkdir()
    for name in ("demo.py", "stage.py"):
        (folder / name).write_text((DEMO.parent / name).read_text())
    agent = (DEMO.parent / "payments.py").read_text()
    (folder / "payments.py").write_text(agent.replace('on_interrupt="ask"', 'on_interrupt="retry"'))
    done = run_demo(tmp_path, folder / "demo.py")
    assert done.returncode == 1
    assert "FALSE recover pays nothing" in done.stdout


def test_the_demo_is_a_short_program() -> None:
    """The demo is short enough to be read in one go."""
    assert len(DEMO.read_text().splitlines()) < 200


def test_make_demo_runs_it() -> None:
    """The command on the README's first screen."""
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in makefile
    assert "python examples/demo.py" in makefile
