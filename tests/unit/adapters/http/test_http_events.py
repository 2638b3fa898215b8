"""Appending and reading events over HTTP: conditions, retries, refusals and whole records."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.unit.adapters.http.calling import Api
from turnledger.ledger import ANY, CustomEvent, Ledger, Limits, RunStarted, blob_name, new_run_id

NDJSON = "application/x-ndjson"
STARTED = {"type": "run.started", "data": {"tags": {"customer": "acme"}}}
NOTE = {"type": "custom", "data": {"kind": "shop.note", "data": {"text": "Grüße"}}}


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def with_id(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "event_id": str(uuid4())}


def post(api: Api, run: Any, body: Any, query: str = "", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    given: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
    return api.call("POST", f"/v1/runs/{run}/events{query}", headers=sent, **given)


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["type"].removeprefix("urn:turnledger:problem:")


def test_events_are_appended_together(api: Api) -> None:
    """The answer has each event's version and position, and the run's version as its ETag."""
    run = new_run_id()
    response = post(api, run, [STARTED, NOTE], if_none_match="*")
    assert (response.status_code, response.headers["etag"]) == (201, '"2"')
    body = response.json()
    records = list(api.ledger.read(run))
    assert (body["version"], body["duplicate"], body["digest"]) == (2, False, records[-1].digest)
    assert [(one["event_id"], one["version"], one["position"]) for one in body["events"]] == [
        (str(one.event_id), one.version, one.position) for one in records
    ]


def test_a_request_that_is_sent_again_is_recognized(api: Api) -> None:
    """With the old condition too: its first answer may have been lost."""
    run = new_run_id()
    started, note = with_id(STARTED), with_id(NOTE)
    assert post(api, run, [started], if_none_match="*").status_code == 201
    assert post(api, run, [note], if_match='"1"').status_code == 201
    for body, condition in ((started, {"if_none_match": "*"}), (note, {"if_match": '"1"'})):
        again = post(api, run, [body], **condition)
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert api.ledger.head(run) == 2


def test_other_content_under_a_known_id_is_a_conflict(api: Api) -> None:
    """It names where the id is recorded."""
    run, note = api.new_run(), with_id(NOTE)
    post(api, run, [note], if_match='"1"')
    other = {**note, "data": {"kind": "shop.other", "data": 1}}
    response = post(api, run, [other], if_match='"2"')
    assert problem(response) == (409, "event-id-conflict")
    assert (response.json()["version"], response.json()["event_id"]) == (2, note["event_id"])


def test_conditions(api: Api) -> None:
    """A version that is not the run's is refused with both; without a condition, so is all."""
    run = api.new_run()
    stale = post(api, run, [NOTE], if_match='"7"')
    assert problem(stale) == (412, "version-conflict")
    assert (stale.json()["expected"], stale.json()["found"]) == (7, 1)
    assert problem(post(api, run, [STARTED], if_none_match="*")) == (412, "version-conflict")
    assert problem(post(api, run, [NOTE])) == (428, "condition-required")
    both = post(api, run, [NOTE], if_match='"1"', if_none_match="*")
    assert problem(both) == (412, "version-conflict")
    assert api.ledger.head(run) == 1
    assert post(api, run, [NOTE], "?expect=any").status_code == 201


def test_a_worker_that_lost_its_claim_is_told(api: Api) -> None:
    """Its epoch is stale; one without an epoch may not write beside a claim."""
    run = api.new_run()
    first = api.ledger.claim(run, worker="a")
    first.release()
    second = api.ledger.claim(run, worker="b")
    completed = [{"type": "run.completed", "data": {}}]
    stale = post(api, run, completed, "?expect=any", turnledger_epoch=str(first.epoch))
    assert problem(stale) == (409, "stale-epoch")
    assert problem(post(api, run, completed, "?expect=any")) == (409, "run-claimed")
    mine = post(api, run, completed, "?expect=any", turnledger_epoch=str(second.epoch))
    assert mine.status_code == 201


@pytest.mark.parametrize(
    ("body", "status", "kind", "pointer"),
    [
        (b"[", 400, "not-json", None),
        (b"", 400, "not-json", None),
        (b'[{"type": "custom"', 400, "not-json", None),
        (b"\xff", 400, "not-json", None),
        (b"[" * 100_000, 400, "not-json", None),
        ({}, 422, "invalid-request", ""),
        ([], 422, "invalid-request", ""),
        ([1], 422, "invalid-request", "/0"),
        ([NOTE, {"type": "no.such", "data": {}}], 422, "invalid-request", "/1/type"),
        ([{"type": "run.claimed", "data": {}}], 422, "invalid-request", "/0/type"),
        ([{"type": "custom", "data": {"kind": 1}}], 422, "invalid-request", "/0/data/kind"),
        ([{**NOTE, "event_id": "x"}], 422, "invalid-request", "/0/event_id"),
        ([{**NOTE, "more": 1}], 422, "invalid-request", "/0"),
        ([{"type": "run.started", "data": {"kind": "fork"}}], 409, "event-refused", None),
        ([STARTED], 409, "event-refused", None),
        ([{"type": "blob", "data": {"content": ""}}], 409, "event-refused", None),
    ],
)
def test_a_bad_body_is_refused_as_a_whole(
    api: Api, body: Any, status: int, kind: str, pointer: str | None
) -> None:
    """What is not JSON, what the schema refuses (with its place), and what a rule refuses."""
    run = api.new_run()
    response = post(api, run, body, if_match='"1"')
    assert problem(response) == (status, kind), response.text
    if pointer is not None:
        assert response.json()["errors"][0]["pointer"] == pointer
    assert api.ledger.head(run) == 1


def test_other_types_of_bodies(api: Api) -> None:
    """Only JSON and NDJSON are read."""
    run = api.new_run()
    response = post(api, run, b"a=b", if_match='"1"', content_type="text/plain")
    assert problem(response) == (415, "unsupported-media-type")


def test_lines_are_appended_like_an_array(api: Api) -> None:
    """With one item a line, and blobs that the events name among them."""
    content = b"\x00png"
    event = CustomEvent(kind="shop.picture", blobs=(blob_name(content),))
    items = [
        STARTED,
        {"type": "blob", "data": {"content": b64encode(content).decode()}},
        {"type": "custom", "data": {"kind": event.kind, "blobs": list(event.blobs)}},
    ]
    run = new_run_id()
    body = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    response = post(api, run, body, if_none_match="*", content_type=NDJSON)
    assert response.status_code == 201, response.text
    assert api.ledger.blob(blob_name(content)) == content
    missing = post(api, run, items[2:], if_match='"2"')
    assert missing.status_code == 201  # it is in the ledger by now
    bad = post(api, run, body + b"{}\n", if_match='"3"', content_type=NDJSON)
    assert (problem(bad), bad.json()["errors"][0]["pointer"]) == ((422, "invalid-request"), "/3")


def test_limits_of_the_ledger() -> None:
    """An event above its limit is too large, and the answer says which limit it is."""
    with Api() as api:
        api.ledger.codec.limits = Limits(max_event_bytes=200)
        api.ledger.codec._max_bytes = 200
        run = api.new_run()
        large = {"type": "custom", "data": {"kind": "shop.note", "data": "x" * 300}}
        response = post(api, run, [large], if_match='"1"')
        assert problem(response) == (413, "too-large")
        assert response.json()["setting"] == "max_event_bytes"


def test_secrets_are_redacted_by_the_store(api: Api) -> None:
    """The same code for Python and for HTTP."""
    run, secret = api.new_run(), "sk-proj-" + "Ab1" * 16
    note = {"type": "custom", "data": {"kind": "shop.note", "data": f"my key is {secret}"}}
    response = post(api, run, [note], if_match='"1"', accept=NDJSON)
    assert response.status_code == 201
    assert secret not in response.text
    assert secret not in api.ledger.record(run, 2).data


# --- reading -----------------------------------------------------------------------------------


def many(ledger: Ledger, count: int) -> Any:
    run = new_run_id()
    events = [CustomEvent(kind=f"shop.{'even' if n % 2 else 'odd'}", data=n) for n in range(count)]
    ledger.append(run, [RunStarted(), *events], ANY)
    return run


def listed(api: Api, run: Any, query: str) -> tuple[list[int], dict[str, Any]]:
    body = api.call("GET", f"/v1/runs/{run}/events{query}").json()
    return [one["version"] for one in body["events"]], body


def test_pages_go_on_by_version(api: Api) -> None:
    """Following `next` gives every event once, in either direction, with a filter or without."""
    run = many(api.ledger, 24)
    for query, expected in (
        ("?limit=7", list(range(1, 26))),
        ("?limit=7&reverse=true", list(range(25, 0, -1))),
        ("?limit=3&type=custom", list(range(2, 26))),
        ("?after=3&until=9", list(range(4, 10))),
        ("?type=run.*", [1]),
    ):
        seen, path = list[int](), f"/v1/runs/{run}/events{query}"
        while path:
            body = api.call("GET", path).json()
            seen += [one["version"] for one in body["events"]]
            assert body["head"] == 25
            path = body.get("next", "")
        assert seen == expected, query


def test_a_list_has_lines_and_sizes_and_data_if_asked_for(api: Api) -> None:
    """Data above 64 kB is cut, which the answer says, with the address of the whole."""
    run, text = api.new_run(), "long " * 20_000
    api.ledger.append(run, [CustomEvent(kind="shop.note", data=text)], ANY)
    plain = api.call("GET", f"/v1/runs/{run}/events").json()["events"][1]
    assert (plain["bytes"], "data" in plain, "cut" in plain) == (100_030, False, False)
    assert plain["line"].startswith("kind=shop.note")
    first, full = api.call("GET", f"/v1/runs/{run}/events?full=1").json()["events"]
    assert (first["data"], "cut" in first) == ({}, False)
    assert ("data" in full, full["cut"]) == (False, f"/v1/runs/{run}/events/2")
    assert api.call("GET", full["cut"]).json()["data"]["data"] == text


def test_records_are_given_whole_as_lines(api: Api) -> None:
    """Byte for byte the data that the digest covers, with ids and times."""
    run = many(api.ledger, 800)
    response = api.call("GET", f"/v1/runs/{run}/events", headers={"accept": NDJSON})
    lines = response.text.splitlines()
    records = list(api.ledger.read(run))
    assert len(lines) == len(records) == 801
    for line, record in zip(lines, records, strict=True):
        found = json.loads(line)
        assert (found["digest"], found["position"]) == (record.digest, record.position)
        assert line.endswith(f'"data":{record.data}}}')


def test_an_event_never_changes(api: Api) -> None:
    """It may be kept for a year; one that is not there yet may not."""
    run = api.new_run()
    found = api.call("GET", f"/v1/runs/{run}/events/1")
    assert "immutable" in found.headers["cache-control"]
    missing = api.call("GET", f"/v1/runs/{run}/events/2")
    assert (problem(missing), missing.json()["head"]) == ((404, "event-not-found"), 1)
    assert missing.headers["cache-control"] == "no-store"
    assert problem(api.call("GET", f"/v1/runs/{new_run_id()}/events")) == (404, "run-not-found")


def test_a_run_that_the_client_has_is_not_sent_again(api: Api) -> None:
    """Its ETag is its version."""
    run = api.new_run()
    tag = api.call("GET", f"/v1/runs/{run}").headers["etag"]
    same = api.call("GET", f"/v1/runs/{run}", headers={"if-none-match": tag})
    assert (same.status_code, same.content) == (304, b"")
    api.ledger.append(run, [CustomEvent(kind="shop.note")], ANY)
    assert api.call("GET", f"/v1/runs/{run}", headers={"if-none-match": tag}).status_code == 200


def test_runs_are_listed_in_pages_with_filters(api: Api) -> None:
    """Each once, the newest first."""
    runs = [str(many(api.ledger, 0)) for _ in range(7)]
    tagged = new_run_id()
    api.ledger.append(tagged, [RunStarted(tags={"customer": "acme"})], ANY)
    seen, path = list[str](), "/v1/runs?limit=3"
    while path:
        body = api.call("GET", path).json()
        seen += [one["run_id"] for one in body["runs"]]
        path = body.get("next", "")
    assert seen == [str(tagged), *reversed(runs)]
    for query in ("tag=customer%3Dacme", "tag=customer", f"id={str(tagged)[-8:]}"):
        (only,) = api.call("GET", f"/v1/runs?{query}").json()["runs"]
        assert only["run_id"] == str(tagged)
    assert api.call("GET", "/v1/runs?status=failed").json() == {"runs": []}
    assert problem(api.call("GET", "/v1/runs?since=5")) == (422, "invalid-request")
    assert problem(api.call("GET", "/v1/runs?since=2026-01-01T00:00:00")) == (
        422,
        "invalid-request",
    )
