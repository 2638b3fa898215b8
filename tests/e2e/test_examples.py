"""The examples, as a newcomer runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from turnledger.ledger import Ledger
from turnledger.projections import state_at

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_minimal_agent_is_minimal_and_works(tmp_path: Path) -> None:
    """Under 25 lines, and each time it is run there is one more run in its ledger."""
    assert len((EXAMPLES / "minimal_agent.py").read_text().splitlines()) < 25
    for count in (1, 2):
        assert run("minimal_agent.py", tmp_path) == "Sunny. Leave the umbrella at home.\n"
        with Ledger.open(tmp_path / "forecasts.db") as ledger:
            assert [info.status for info in ledger.runs()] == ["completed"] * count


def test_the_code_reviewers_session_goes_on(tmp_path: Path) -> None:
    """S2-11: one session over all requests, and one digest, which is written first."""
    out = run("code_reviewer.py", tmp_path)
    assert out.splitlines()[-1] == "notes: 2"
    with Ledger.open(tmp_path / "reviews.db") as ledger:
        second, digest, first = ledger.runs()
        assert (second.kind, second.parent, first.kind) == ("continuation", first.run_id, "run")
        assert digest.tags == {"turnledger.serves": str(first.run_id)}
        assert [info.status for info in (second, digest, first)] == ["completed"] * 3
        assert state_at(ledger, second.run_id).summary.time_limit == 300
        tools = [call.name for call in state_at(ledger, second.run_id).tools.calls]
        assert tools == ["planning_setup_plan", "read_file", "note", "planning_mark_step"]


def test_a_worker_takes_up_what_a_killed_one_left(tmp_path: Path) -> None:
    """S2-24: it recovers first; the payment in doubt is left to a person, and not made again."""
    still = tmp_path / "still"
    environment = {**os.environ, "DEMO_STANDSTILL": str(still)}
    command = [sys.executable, EXAMPLES / "worker.py", "jobs.db", "17"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as worker:
        while not still.exists():
            assert worker.poll() is None
            time.sleep(0.01)
        worker.send_signal(signal.SIGKILL)
    out = run("worker.py", tmp_path, "jobs.db", "18")
    assert "waits for a decision about call_2" in out
    assert "invoice 18: Invoice 17 is paid: 120." in out
    assert len((tmp_path / "bank.txt").read_text().splitlines()) == 2
    with Ledger.open(tmp_path / "jobs.db") as ledger:
        assert sorted(info.status for info in ledger.runs()) == ["completed", "waiting"]
