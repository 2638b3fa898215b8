"""The queue under kills: each request is completed once, and pays once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.queueing import Crew, request, until_done
from turnledger.ledger import Ledger

pytestmark = pytest.mark.process


def test_killed_workers_complete_each_request_once(file_url: str, tmp_path: Path) -> None:
    """Nothing is lost, no payment is made twice, and SIGTERM ends those that are left."""
    with Ledger.open(file_url) as ledger:
        runs = request(ledger, 30)
        crew = Crew(file_url, tmp_path, processes=2)
        try:
            told = until_done(crew, ledger, runs, seconds=100, kills=3, seed=7)
            ended = crew.drain()
            assert set(ended) <= {0, -signal.SIGTERM}, crew.log()  # one may still be starting
            assert 0 in ended
        finally:
            crew.close()
        assert ledger.verify_all().ok
    assert (told.completed, told.kills) == (30, 3)
    assert told.payments == [1] * 30
