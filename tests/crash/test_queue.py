"""The queue under kills: each request is completed once, and pays once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.queueing import Crew, Told, request, until_done
from tests.crash.served import served
from turnledger.ledger import Ledger

pytestmark = pytest.mark.process

REQUESTS, KILLS = 2000, 20


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


@pytest.mark.full
def test_four_processes_on_a_file(file_url: str, tmp_path: Path) -> None:
    """2,000 requests at once: each is completed once and pays once, and none starves."""
    with Ledger.open(file_url) as ledger:
        runs = request(ledger, REQUESTS)
        crew = Crew(file_url, tmp_path, processes=4, concurrency=4)
        try:
            told = until_done(crew, ledger, runs, seconds=900, kills=KILLS, seed=11)
        finally:
            crew.close()
        assert ledger.verify_all().ok
    check(told)


@pytest.mark.full
def test_ten_processes_that_have_a_url(server_url: str, tmp_path: Path) -> None:
    """The same over HTTP and PostgreSQL, while the server itself is killed twice."""
    with served(server_url) as server, Ledger.open(server_url) as ledger:
        runs = request(ledger, REQUESTS)
        crew = Crew(
            server.url, tmp_path, processes=10, concurrency=2, lease=6.0, token=server.token
        )
        left = [REQUESTS * 2 // 3, REQUESTS // 3]

        def restart(completed: int) -> None:
            if left and completed >= left[-1]:
                left.pop()
                server.kill()
                server.start()

        try:
            told = until_done(
                crew, ledger, runs, seconds=1500, kills=KILLS, seed=13, between=restart
            )
        finally:
            crew.close()
        assert not left
        assert ledger.verify_all().ok
    check(told)


def check(told: Told) -> None:
    """All of it was done once; the longest wait for a first claim is near the others."""
    print(told._replace(payments=[]))
    assert (told.completed, told.kills) == (REQUESTS, KILLS)
    assert told.payments == [1] * REQUESTS
    assert told.longest_wait <= 3 * told.median_wait
