"""The routes that write beside append: claims, forks, decisions and imports, each sent twice."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.unit.adapters.http.calling import Api
from turnledger.ledger import (
    ANY,
    CustomEvent,
    Ledger,
    RunClaimed,
    ToolCallDecided,
    ToolCallStarted,
    blob_name,
    export_runs,
    new_run_id,
)

KEY = "k" * 32
OTHER = "o" * 32


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def post(api: Api, run: UUID, what: str, body: Any, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.call("POST", f"/v1/runs/{run}/{what}", json=body, headers=named)


def claim(api: Api, run: UUID, worker: str = "ann", key: str = KEY, **more: Any) -> httpx.Response:
    return post(api, run, "claim", {"worker": worker, **more}, turnledger_claim_key=key)


def kind_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].rpartition(":")[2]


# --- claims ---


def test_a_claim_is_reentrant_for_its_worker_and_key(api: Api) -> None:
    """The same again prolongs it; another key, or another worker, is refused."""
    run = api.new_run()
    first, again = claim(api, run), claim(api, run)
    assert first.json() == again.json()
    assert (first.json()["epoch"], first.headers["etag"]) == (1, '"2"')
    for worker, key in (("ann", OTHER), ("bob", KEY)):
        assert kind_of(claim(api, run, worker, key)) == (409, "run-claimed")
    assert [record.event for record in api.ledger.read(run, after=1)] == [
        RunClaimed(worker="ann", epoch=1)
    ]


def test_a_run_is_started_and_claimed_at_once_and_again(api: Api) -> None:
    """With ids, the same request again gives the same claim."""
    run = new_run_id()
    started = {"type": "run.started", "data": {}, "event_id": str(new_run_id())}
    first, again = claim(api, run, started=started), claim(api, run, started=started)
    assert first.status_code == 200, first.text
    assert first.json() == again.json()
    assert api.ledger.head(run) == 2
    other = {**started, "event_id": str(new_run_id())}
    assert kind_of(claim(api, run, started=other)) == (409, "run-claimed")


def test_heartbeat_and_release_want_the_key(api: Api) -> None:
    """A wrong key prolongs nothing and frees nothing; a second release is harmless."""
    run = api.new_run()
    epoch = claim(api, run).json()["epoch"]
    body = {"worker": "ann", "epoch": epoch}
    wrong = post(api, run, "heartbeat", body, turnledger_claim_key=OTHER)
    assert kind_of(wrong) == (409, "run-claimed")
    assert post(api, run, "heartbeat", body, turnledger_claim_key=KEY).status_code == 204
    assert post(api, run, "release", body, turnledger_claim_key=OTHER).status_code == 204
    assert api.call("GET", f"/v1/runs/{run}/claim").json()["is_live"]
    for _ in range(2):
        assert post(api, run, "release", body, turnledger_claim_key=KEY).status_code == 204
    assert not api.call("GET", f"/v1/runs/{run}/claim").json()["is_live"]
    late = post(api, run, "heartbeat", body, turnledger_claim_key=KEY)
    assert kind_of(late) == (409, "stale-epoch")


def test_a_claim_key_is_in_no_answer_and_in_no_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither when it is used, nor when it is refused."""
    secret = "s3cr3t-of-this-worker"
    caplog.set_level(logging.DEBUG)
    run = api.new_run()
    answers = [
        claim(api, run, key=secret),
        claim(api, new_run_id(), key=secret),
        claim(api, run, worker="", key=secret),
        post(api, run, "claim", {"worker": "ann"}, turnledger_claim_key=secret + " "),
        post(api, run, "claim", {"worker": "ann"}, turnledger_claim_key="short"),
    ]
    assert [one.status_code for one in answers] == [200, 404, 422, 422, 422]
    seen = "".join([*(one.text for one in answers), caplog.text])
    assert secret not in seen
    assert "short" not in answers[-1].text.replace("shorter", "")


# --- forks ---


def test_a_fork_with_events_is_started_once(api: Api) -> None:
    """The child has its first event and those given; the same again is 200 and `duplicate`."""
    run, child = api.new_run(), new_run_id()
    note = {"type": "custom", "data": {"kind": "a.b", "data": 1}, "event_id": str(new_run_id())}
    blob = {"type": "blob", "data": {"content": "aGVsbG8="}}
    body = {"child": str(child), "at": 1, "tags": {"a": "b"}, "events": [note, blob]}
    first, again = post(api, run, "fork", body), post(api, run, "fork", body)
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert again.json()["duplicate"]
    assert [record.tag for record in api.ledger.read(child)] == ["run.started"] * 2 + ["custom"]
    info = api.ledger.run(child)
    assert (info.parent, info.kind, info.tags) == (run, "fork", {"a": "b"})


def test_python_knows_a_fork_that_was_made_over_http(api: Api) -> None:
    """The first event's id follows from the child's, wherever it is forked."""
    run, child = api.new_run(), new_run_id()
    body = {"child": str(child), "at": 1, "kind": "continuation"}
    assert post(api, run, "fork", body).status_code == 201
    assert api.ledger.continuation(run, at=1, child=child) == child
    assert api.ledger.head(child) == 2


def test_a_fork_elsewhere_is_refused(api: Api) -> None:
    """Beyond the run's end, and of a run that is not there."""
    run = api.new_run()
    body = {"child": str(new_run_id()), "at": 7}
    refused = post(api, run, "fork", body)
    assert kind_of(refused) == (409, "fork-point")
    assert refused.json()["nearest"] == [1]
    assert kind_of(post(api, new_run_id(), "fork", body)) == (404, "run-not-found")


# --- decisions ---


def in_doubt(api: Api) -> UUID:
    """A run with a call that was started, and whose worker is gone."""
    run = api.new_run()
    started = ToolCallStarted(evaluation_id="e1", call_id="c1", name="pay")
    api.ledger.append(run, started, ANY)
    return run


def test_a_call_in_doubt_is_decided_once(api: Api) -> None:
    """With the version that was shown; the same again changes nothing, though the run grew."""
    run = in_doubt(api)
    body = {
        "call_id": "c1",
        "decision": "completed",
        "value": {"paid": True},
        "by": "ann",
        "event_id": str(new_run_id()),
    }
    first = post(api, run, "resolve", body, if_match='"2"')
    assert first.status_code == 200, first.text
    api.ledger.append(run, CustomEvent(kind="a.b"), ANY)
    again = post(api, run, "resolve", body, if_match='"2"')
    assert again.status_code == 200
    found = [record.event for record in api.ledger.read(run, after=2)]
    assert found == [
        ToolCallDecided(
            call_id="c1", decision="completed", value={"paid": True}, decided_by="ann", attempt=1
        ),
        CustomEvent(kind="a.b"),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"call_id": "c2"}, (404, "call-not-found")),
        ({"decision": "approve"}, (409, "event-refused")),
        ({"decision": "maybe"}, (422, "invalid-request")),
    ],
)
def test_what_can_not_be_decided_is_refused(
    api: Api, change: dict[str, str], expected: tuple[int, str]
) -> None:
    """Another call, one that needs no approval, and what is no decision."""
    run = in_doubt(api)
    body = {"call_id": "c1", "decision": "retry", "event_id": str(new_run_id()), **change}
    assert kind_of(post(api, run, "resolve", body, if_match='"2"')) == expected
    assert api.ledger.head(run) == 2


def test_a_call_that_changed_since_it_was_shown_is_not_decided(api: Api) -> None:
    """412; and 428 without the version that was shown; 409 while a worker has the run."""
    run = in_doubt(api)
    body = {"call_id": "c1", "decision": "retry", "event_id": str(new_run_id())}
    assert kind_of(post(api, run, "resolve", body)) == (428, "condition-required")
    with api.ledger.claim(run):
        busy = post(api, run, "resolve", body, if_match='"2"')
        assert kind_of(busy) == (409, "run-claimed")
    assert post(api, run, "resolve", body, if_match='"2"').status_code == 200
    other = {**body, "decision": "failed", "event_id": str(new_run_id())}
    assert kind_of(post(api, run, "resolve", other, if_match='"2"')) == (412, "call-changed")


# --- import, blobs, the ledger in order ---


def exported(count: int) -> tuple[bytes, bytes]:
    """An export with a blob, and the blob's bytes."""
    content, out = b"\x00<script>", io.BytesIO()
    with Ledger.open("memory://") as ledger:
        for _ in range(count):
            event = CustomEvent(kind="a.b", blobs=(blob_name(content),))
            ledger.append(new_run_id(), event, ANY, blobs=[content])
        export_runs(ledger, out)
    return out.getvalue(), content


def test_an_export_is_imported_once(api: Api) -> None:
    """Again, all of it is there already; a damaged one and what is none are refused whole."""
    body, _ = exported(3)
    headers = {"content-type": "application/x-ndjson"}

    def send(content: bytes) -> httpx.Response:
        return api.call("POST", "/v1/import", content=content, headers=headers)

    assert send(body).json()["imported"] == 3
    assert send(body).json() == {
        "runs": 3,
        "records": 3,
        "imported": 0,
        "already_there": 3,
        "blobs": 0,
        "redacted": 0,
        "rechained": [],
    }
    assert kind_of(send(b"{}\n")) == (409, "not-an-export")
    damaged, _ = exported(1)
    assert kind_of(send(damaged.replace(b'"a.b"', b'"a.c"'))) == (409, "export-damaged")
    assert sum(1 for _ in api.ledger.tail()) == 3


def test_a_blob_is_a_download_that_never_changes(api: Api) -> None:
    """Whatever its bytes look like, no browser shows them as a page."""
    _, content = exported(1)
    event = CustomEvent(kind="a.b", blobs=(blob_name(content),))
    api.ledger.append(new_run_id(), event, ANY, blobs=[content])
    answer = api.call("GET", f"/v1/blobs/{blob_name(content)}")
    assert answer.content == content
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "immutable" in answer.headers["cache-control"]


def test_all_records_are_listed_in_order_both_ways(api: Api) -> None:
    """In pages by position: none is missed, none comes twice."""
    for _ in range(5):
        api.new_run()
    positions = [record.position for record in api.ledger.tail()]

    def listed(query: str) -> list[int]:
        lines = api.call("GET", f"/v1/events?{query}").text.splitlines()
        return [httpx.Response(200, text=line).json()["position"] for line in lines]

    assert listed("") == positions
    assert listed("limit=2") == positions[:2]
    assert listed(f"after={positions[1]}&limit=2") == positions[2:4]
    assert listed(f"before={positions[4]}") == positions[3::-1]
    assert listed(f"after={positions[-1]}&confirmed=true") == []
