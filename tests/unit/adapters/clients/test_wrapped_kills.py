"""A process that is killed in the middle of a stream: the call is asked again, and no other.

The table of `tests/frameworks/agents` does this with the other wires.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.serving import Answer, Asked, Scripted, Stall, StrictServer
from tests.unit.adapters.clients.wrapped import WAYS, Way
from turnledger.ledger import Ledger, ModelCalled, ModelReplied, RunCompleted, run_id_for

LONG = Answer("the whole of a long answer")
STREAMS = [way for way in WAYS if way.stream and way.sdk in ("openai-responses", "gemini")]


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("way", STREAMS, ids=str)
def test_a_stream_that_a_kill_cut_is_asked_again(way: Way, tmp_path: Path) -> None:
    """It has no outcome; the one before it has, and is not asked again."""

    def script(asked: Asked) -> Scripted:
        return Stall(LONG) if (asked.turn, asked.attempt) == (2, 1) else LONG

    program = [sys.executable, "-m", "tests.unit.adapters.clients.streaming_program", str(way)]
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with StrictServer(way.wire, script) as server:
        command = [*program, server.url, url]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert victim.stdout is not None
        while not victim.stdout.read(1).strip():
            assert victim.poll() is None
        victim.kill()
        victim.wait()
        victim.stdout.close()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout == LONG.text
        assert [asked.turn for asked in server.asked] == [1, 2, 2]
    with Ledger.open(url) as ledger:
        events = [record.event for record in ledger.read(run_id_for("killed"))]
        assert [one.attempt for one in events if isinstance(one, ModelCalled)] == [1, 1, 2]
        assert len([one for one in events if isinstance(one, ModelReplied)]) == 2
        assert isinstance(events[-1], RunCompleted)
