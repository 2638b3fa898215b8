"""The eventsourcing library's ProjectionRunner over a ledger, SIGKILLed in between."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.conformance.samples import message, note
from tests.crash.driver import ROOT
from tests.crash.projecting import MOMENTS
from turnledger.ledger import ANY, Ledger, new_run_id


def project(url: str, view: Path, position: int, moment: str, count: int) -> int:
    command = [sys.executable, "-m", "tests.crash.projecting", url, view, position, moment, count]
    return subprocess.run(list(map(str, command)), cwd=ROOT, timeout=120).returncode


def test_each_event_is_processed_once_though_the_runner_is_killed(
    ledger_url: str, tmp_path: Path
) -> None:
    """Before, within and after the commit of its view; events come while it is dead, too."""
    view = tmp_path / "view.db"
    runs = [new_run_id(), new_run_id()]
    with Ledger.open(ledger_url) as ledger:
        for number, moment in enumerate(MOMENTS * 2):
            for run in runs:
                latest = ledger.append(run, [note(number), message(str(number))], ANY)
            killed = project(ledger_url, view, latest.position, moment, count=1 + number % 3)
            assert killed == -signal.SIGKILL
        assert project(ledger_url, view, latest.position, "never", count=-1) == 0
        recorded = [(str(r.event_id), str(r.run_id), r.version) for r in ledger.tail()]
    with closing(sqlite3.connect(view)) as connection:
        seen = connection.execute("SELECT * FROM seen ORDER BY rowid").fetchall()
    assert seen == recorded
    assert len(recorded) == 24
