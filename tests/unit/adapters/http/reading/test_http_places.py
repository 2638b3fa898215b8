"""Places in a ledger over HTTP: where an event is, and where a fork can begin."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.servers.ledger_server import LedgerServer
from tests.unit.adapters.http.calling import Api
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    PromptTagMoved,
    RunStarted,
    new_run_id,
    prompt_stream_id,
)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def note() -> CustomEvent:
    return CustomEvent(kind="shop.note")


def test_an_event_is_found_by_its_id(api: Api) -> None:
    """In the run that holds it, also if forks share it; an unknown id is a problem."""
    run = api.new_run()
    api.ledger.fork(run, 1)
    record = api.ledger.record(run, 1)
    found = api.call("GET", f"/v1/events/{record.event_id}")
    assert found.json() == {
        "run_id": str(run),
        "version": 1,
        "position": record.position,
        "type": "run.started",
    }
    assert "immutable" in found.headers["cache-control"]
    missing = api.call("GET", f"/v1/events/{uuid4()}")
    assert missing.status_code == 404
    assert missing.json()["type"].endswith(":event-not-found")
    assert api.call("GET", "/v1/events/nothing").status_code == 422


def point(api: Api, run: Any, at: int) -> Any:
    response = api.call("GET", f"/v1/runs/{run}/fork", params={"at": at})
    assert response.status_code == 200, response.text
    return response.json()


def refusal(api: Api, run: Any, at: int) -> Any:
    body = {"child": str(uuid4()), "at": at}
    return api.call("POST", f"/v1/runs/{run}/fork", json=body).json()


def test_where_a_fork_can_begin(api: Api) -> None:
    """At the end of a commit; elsewhere it says why not, as the fork itself would, and where."""
    run = api.new_run()
    api.ledger.append(run, [note()] * 3, ANY)
    fork = api.ledger.fork(run, 4)
    for one in (run, fork):
        for at in (1, 4):
            allowed = {"at": at, "allowed": True, "reason": "", "before": None, "after": None}
            assert point(api, one, at) == allowed
            assert "version" in refusal(api, one, at)
        for at in (2, 3):
            found, refused = point(api, one, at), refusal(api, one, at)
            assert refused["type"].endswith(":fork-point")
            assert found["reason"] == refused["detail"]
            assert [found["before"], found["after"]] == refused["nearest"] == [1, 4]
    beyond = point(api, run, 9)
    assert beyond["reason"] == refusal(api, run, 9)["detail"]
    assert (beyond["allowed"], beyond["before"], beyond["after"]) == (False, 4, None)


def test_what_can_not_be_forked_at_all(api: Api) -> None:
    """The stream of a prompt says so; a run that is not there is a problem."""
    stream = prompt_stream_id("shop", "greeting")
    moved = PromptTagMoved(prompt_ns="shop", prompt_key="greeting", tag_name="live", version=0)
    api.ledger.append(stream, moved, ANY)
    found = point(api, stream, 1)
    assert (found["allowed"], found["before"], found["after"]) == (False, None, None)
    assert found["reason"] == refusal(api, stream, 1)["detail"]
    missing = api.call("GET", f"/v1/runs/{new_run_id()}/fork", params={"at": 1})
    assert missing.json()["type"].endswith(":run-not-found")


def test_readers_do_not_wait_for_writers(tmp_path: Path) -> None:
    """While another process writes for long, places are found and runs are listed."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger, LedgerServer(ledger) as server:
        run = new_run_id()
        ledger.append(run, [RunStarted(), note(), note()], NEW)
        event_id = ledger.record(run, 1).event_id
        _ = server.reader
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert server.get(f"/v1/events/{event_id}").json()["version"] == 1
            assert server.get(f"/v1/runs/{run}/fork?at=2").json()["after"] == 3
            assert server.get("/v1/runs?details=true").json()["details"]
