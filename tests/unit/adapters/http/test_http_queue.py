"""The routes of the queue: requests, and claims that wait without holding a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import active_count
from typing import Any

import httpx
import pytest

from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.live import waiting_claims
from turnledger.adapters.http.live.waiting_claims import Asked, WaitingClaims
from turnledger.adapters.http.work import Work
from turnledger.ledger import Claim, RunCompleted, new_run_id
from turnledger.ledger.ledger import DEFAULT_TTL

AGENT = "shop/a"
KEY = {"turnledger-claim-key": "k" * 32}


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def claim(api: Api, **more: Any) -> httpx.Response:
    body = {"agents": [AGENT], "worker": "ann", **more}
    return api.call("POST", "/v1/claims", json=body, headers=KEY)


def test_a_request_is_recorded_once_and_claimed(api: Api) -> None:
    """202 each time it is sent; the claim is as any other."""
    run = str(new_run_id())
    body = {"agent": AGENT, "input": {"order": 1}, "run_id": run, "tags": {"a": "b"}}
    for _ in range(2):
        answer = api.call("POST", "/v1/requests", json=body)
        assert (answer.status_code, answer.json()) == (202, {"run_id": run})
    assert api.ledger.head(run) == 1
    other = api.call("POST", "/v1/requests", json={**body, "input": 2})
    assert (other.status_code, other.json()["type"].rpartition(":")[2]) == (412, "version-conflict")
    for _ in range(2):
        answer = claim(api)
        assert answer.status_code == 200
        assert answer.headers["etag"] == '"2"'
        assert answer.json() == {
            "run_id": run,
            "worker": "ann",
            "epoch": 1,
            "version": 2,
            "ttl": 60.0,
        }
    assert claim(api, worker="bob").status_code == 204


def test_a_run_id_is_made_for_a_request_without_one(api: Api) -> None:
    """And an input may be null."""
    answer = api.call("POST", "/v1/requests", json={"agent": AGENT, "input": None})
    assert api.ledger.run(answer.json()["run_id"]).agent == AGENT


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/requests", {"agent": "", "input": 1}),
        ("/v1/requests", {"agent": AGENT}),
        ("/v1/requests", {"agent": AGENT, "input": 1, "tags": {"a": 1}}),
        ("/v1/claims", {"agents": [], "worker": "w"}),
        ("/v1/claims", {"agents": [AGENT], "worker": "w", "wait": 31}),
        ("/v1/claims", {"agents": [AGENT]}),
    ],
)
def test_bodies_that_make_no_sense_are_refused(api: Api, path: str, body: Any) -> None:
    """422 with the place in the body."""
    answer = api.call("POST", path, json=body, headers=KEY)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] is not None


async def never_gone() -> bool:
    return False


def asked(worker: object) -> Asked:
    return Asked((AGENT,), (), str(worker), DEFAULT_TTL, "k" * 32)


def test_many_waiting_workers_hold_no_thread_and_share_a_look(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 wait; the ledger is asked for one of them at a time, and each run is given once."""
    calls = 0
    real = api.ledger.claim_next

    def counted(*args: Any, **options: Any) -> Claim | None:
        nonlocal calls
        calls += 1
        return real(*args, **options)

    monkeypatch.setattr(api.ledger, "claim_next", counted)

    async def wait_all() -> list[Claim | None]:
        threads = active_count()  # of this process: other tests may have left some
        queue = WaitingClaims(api.ledger, Work())
        waiting = [asyncio.create_task(queue.next(asked(n), 30.0, never_gone)) for n in range(500)]
        while sum(map(len, queue._groups.values())) < 500:
            await asyncio.sleep(0.001)
        before = calls
        assert active_count() < threads + 50
        for n in range(500):
            api.ledger.enqueue(AGENT, n)
        found = await asyncio.gather(*waiting)
        assert calls - before < 600
        return found

    found = api.run(wait_all())
    assert len({one.run_id for one in found if one is not None}) == 500


def test_a_worker_that_hung_up_is_given_nothing(api: Api) -> None:
    """Its run goes to the next one; a claim that came too late is released."""

    async def gone() -> bool:
        return True

    async def scenario() -> Claim | None:
        queue = WaitingClaims(api.ledger, Work())
        first = asyncio.create_task(queue.next(asked("gone"), 30.0, gone))
        second = asyncio.create_task(queue.next(asked("there"), 30.0, never_gone))
        while not queue._groups:
            await asyncio.sleep(0.001)
        api.ledger.enqueue(AGENT, 1)
        claim = await second
        assert await asyncio.gather(first, return_exceptions=True)
        return claim

    found = api.run(scenario())
    assert found is not None
    assert found.worker == "there"


def test_waiting_ends_when_its_time_is_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """204, nobody waits any more, and nothing is claimed by it later."""
    monkeypatch.setattr(waiting_claims, "LONGEST_NAP", 0.01)
    assert claim(api, wait=0.03).status_code == 204
    run = api.ledger.enqueue(AGENT, 1)
    assert api.ledger.worker_of(run) is None
    assert claim(api).json()["run_id"] == str(run)
    with api.ledger.claim(run, worker="ann", key="k" * 32) as held:
        api.ledger.append(run, RunCompleted(), held.version, held.epoch)
