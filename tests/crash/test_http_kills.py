"""Over HTTP: a killed server loses nothing that it acknowledged, a killed worker pays once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from tests.crash.driver import drive
from tests.crash.remote_work import MOMENTS
from tests.crash.served import ServedLedger, served
from turnledger.adapters.http import LedgerClient
from turnledger.ledger import (
    ANY,
    CustomEvent,
    Ledger,
    RunClaimedError,
    RunCompleted,
    RunStarted,
    new_run_id,
)

pytestmark = pytest.mark.process

WRITERS, BATCH, KILLS = 4, 5, 3
# Appends that are acknowledged before each kill.
ENOUGH = 12


def test_a_worker_with_a_url_is_killed_in_a_payment_and_another_pays_once(
    ledger_url: str, tmp_path: Path
) -> None:
    """Its lease stays until its time is up; then another worker claims the run and ends it."""
    with served(ledger_url) as server:
        told = drive(
            "remote_work",
            seconds=100,
            server=server.url,
            token=server.token,
            folder=str(tmp_path),
        )
    assert told.keys() == MOMENTS.keys()
    for moment, outcome in told.items():
        assert outcome["effects"].count("a2") == 1, moment
        assert sorted(outcome["effects"]) == sorted(set(outcome["effects"])), moment
        assert (outcome["status"], outcome["epochs"]) == ("completed", [1, 2]), moment
        assert outcome["left a lease"], moment
        assert outcome["worker"] is None, moment
        assert outcome["sound"], moment


class Appends:
    """Bodies that are sent one after the other to runs of their own, and what was answered."""

    def __init__(self, server: ServedLedger) -> None:
        self._server = server
        self._lock = Lock()
        self.sent: list[tuple[UUID, bytes]] = []
        self.answered: dict[int, dict[str, Any]] = {}
        self.enough = Event()
        self.wanted = 0

    def send(self, http: httpx.Client, run: UUID, body: bytes) -> httpx.Response:
        return http.post(
            f"{self._server.url}/v1/runs/{run}/events?expect=any",
            content=body,
            headers={
                "authorization": f"Bearer {self._server.token}",
                "content-type": "application/json",
            },
        )

    def go_on(self) -> None:
        """Append until there is no answer."""
        run = new_run_id()
        with httpx.Client() as http:
            while True:
                body = _body()
                with self._lock:
                    place = len(self.sent)
                    self.sent.append((run, body))
                try:
                    answer = self.send(http, run, body)
                except httpx.TransportError:
                    return
                assert answer.status_code == 201, answer.text
                with self._lock:
                    self.answered[place] = answer.json()
                    if len(self.answered) >= self.wanted:
                        self.enough.set()


def _body() -> bytes:
    events = [
        {"type": "custom", "data": {"kind": "a.b", "data": at}, "event_id": str(new_run_id())}
        for at in range(BATCH)
    ]
    return msgspec.json.encode(events)


def test_a_killed_server_has_what_it_acknowledged(ledger_url: str) -> None:
    """The same bodies again give 200 and `duplicate`, or are recorded now; each event once."""
    with served(ledger_url) as server:
        appends = Appends(server)
        for _ in range(KILLS):
            appends.enough.clear()
            appends.wanted = len(appends.answered) + ENOUGH
            with ThreadPoolExecutor(WRITERS) as pool:
                writers = [pool.submit(appends.go_on) for _ in range(WRITERS)]
                assert appends.enough.wait(60)
                server.kill()
                for writer in writers:
                    writer.result(60)
            server.start()
        again = []
        with httpx.Client() as http:
            for run, body in appends.sent:
                answer = appends.send(http, run, body)
                again.append((answer.status_code, answer.json()))
    assert len(appends.answered) >= KILLS * ENOUGH
    for place, first in appends.answered.items():
        status, answer = again[place]
        assert (status, answer["duplicate"]) == (200, True)
        for name in ("event_id", "version", "position", "digest"):
            assert [one[name] for one in answer["events"]] == [one[name] for one in first["events"]]
    assert {status for status, _ in again} <= {200, 201}
    with Ledger.open(ledger_url) as ledger:
        assert ledger.verify_all().ok
        found = [str(record.event_id) for record in ledger.tail()]
    sent = [one["event_id"] for _, body in appends.sent for one in msgspec.json.decode(body)]
    assert sorted(found) == sorted(sent)


def test_a_client_appends_through_a_restart_of_the_server(ledger_url: str) -> None:
    """What gets no answer is sent again with the same ids: nothing is lost or doubled."""
    run, count = new_run_id(), 30
    with (
        served(ledger_url) as server,
        LedgerClient(server.url, server.token, wait=90) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        reached = Event()

        def write() -> None:
            for number in range(count):
                client.append(run, CustomEvent(kind="a.b", data=number), ANY)
                if number == 10:
                    reached.set()

        writing = pool.submit(write)
        assert reached.wait(60)
        server.kill()
        server.start()
        writing.result(90)
        found = [record.event for record in client.read(run)]
    assert found == [CustomEvent(kind="a.b", data=number) for number in range(count)]


def test_a_killed_server_frees_no_run(ledger_url: str) -> None:
    """The lease is the claim key's: another worker is refused, and this one goes on."""
    run = new_run_id()
    with (
        served(ledger_url) as server,
        LedgerClient(server.url, server.token) as client,
        LedgerClient(server.url, server.token) as other,
    ):
        claim = client.begin(run, RunStarted(), ttl=timedelta(hours=1))
        server.kill()
        server.start()
        with pytest.raises(RunClaimedError):
            other.claim(run)
        claim.heartbeat()
        client.append(run, RunCompleted(), claim.version, claim.epoch)
        claim.release()
        assert other.claim(run).epoch == 2
