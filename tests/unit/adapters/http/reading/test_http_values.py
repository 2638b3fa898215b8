"""Single values over HTTP: windows of them, and large answers that are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import httpx
import msgspec
import pytest

from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.routes.run import values
from turnledger.ledger import (
    ANY,
    CustomEvent,
    EvaluationStarted,
    InnerMessage,
    MessageAppended,
    SliceEventApplied,
    import_runs,
)
from turnledger.projections import state_at
from turnledger.projections.run_state.json_diff import escaped

HISTORIES = Path(__file__).parents[4] / "replay" / "histories"
FILES = sorted(HISTORIES.glob("*.jsonl"))[::9]
LONG = "é" * 45_000
ROLES: tuple[Literal["system", "user"], ...] = ("system", "user")
PAYLOAD = {
    "text": LONG,
    "list": list(range(450)),
    "many": {f"key {n}": n for n in range(450)},
    "n": 1.5,
    "yes": True,
    "none": None,
    "a/b~c": {"": "empty"},
    "k" * 3000: {"k" * 3000: ["x" * 3000]},
}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with Api() as made:
        for path in FILES:
            with path.open("rb") as file:
                import_runs(made.ledger, file)
        yield made


@pytest.fixture(scope="module")
def large(api: Api) -> UUID:
    """A run whose last event has large values."""
    run = api.new_run()
    api.ledger.append(run, CustomEvent(kind="shop.note", data=PAYLOAD), ANY)
    return run


def get(api: Api, run: Any, path: str, **query: Any) -> httpx.Response:
    response = api.call("GET", f"/v1/runs/{run}/{path}", params=query)
    assert response.status_code == 200, response.text
    return response


def value(api: Api, run: Any, path: str, pointer: str, limit: int, **query: Any) -> Any:
    """A value as its windows show it: each entry that was cut is read by its own pointer."""
    made: list[Any] = []
    while True:
        body = get(
            api, run, path, pointer=pointer, limit=limit, **{"from": len(made)}, **query
        ).json()
        if body["kind"] not in ("text", "list", "object"):
            assert body["total"] == 1
            return body["value"]
        name = {"text": "text", "list": "items", "object": "fields"}[body["kind"]]
        page = list(body[name])
        cuts = {one["pointer"].split("/")[2] for one in body["cut"]}
        for place in map(int, cuts):
            key = page[place][0] if name == "fields" else len(made) + place
            inner = value(api, run, path, f"{pointer}/{escaped(str(key))}", limit, **query)
            page[place] = [key, inner] if name == "fields" else inner
        made += page
        if len(made) == body["total"]:
            break
        assert page, body
    if name == "text":
        return "".join(made)
    return dict(made) if name == "fields" else made


@pytest.mark.parametrize("limit", [1, 200])
def test_windows_of_the_state_together_are_the_state(api: Api, limit: int) -> None:
    """Whatever their size: the views are its fields, and lists in them are read by pointer."""
    for info in api.ledger.runs():
        at = info.version // 2 or 1
        whole = state_at(
            api.ledger, info.run_id, at, declarations=api.app.served.declarations
        ).to_json()
        found = value(api, info.run_id, "value", "", limit, at=at)
        assert list(found) == list(whole)
        assert found == whole


def test_windows_of_an_event_together_are_its_data(api: Api, large: UUID) -> None:
    """Long texts, lists and objects come in slices; what a pointer can't name is still listed."""
    short = {name: one for name, one in PAYLOAD.items() if len(name) < 2000}
    for name, one in short.items():
        pointer = f"/data/{escaped(name)}"
        assert value(api, large, "events/2/value", pointer, 200) == one
    page = get(api, large, "events/2/value", pointer="/data", limit=200)
    assert "immutable" in page.headers["cache-control"]
    body = page.json()
    assert (body["kind"], body["total"], body["version"]) == ("object", len(PAYLOAD), 2)
    assert [name[:2000] for name in PAYLOAD] == [name for name, _ in body["fields"]]
    assert {"pointer": "/fields/7/0", "kind": "text", "total": 3000} in body["cut"]
    text = get(api, large, "events/2/value", pointer="/data/text", **{"from": 44_000}).json()
    assert text["text"] == LONG[44_000:]
    assert len(get(api, large, "events/2/value", pointer="/data/text").json()["text"]) == 20_000


def test_a_window_counts_from_the_end(api: Api, large: UUID) -> None:
    """The last entries or characters; `start` says where they are, and never before the first."""
    for name, field in (("list", "items"), ("many", "fields"), ("text", "text")):
        pointer, whole = f"/data/{name}", PAYLOAD[name]
        entries: Any = list(map(list, whole.items())) if isinstance(whole, dict) else whole
        body = get(api, large, "events/2/value", pointer=pointer, **{"from": -3}).json()
        assert body["start"] == len(entries) - 3
        assert body[field] == entries[-3:]
    short = get(api, large, "events/2/value", pointer="/data/a~1b~0c", **{"from": -3}).json()
    assert (short["start"], short["fields"]) == (0, [["", "empty"]])
    assert get(api, large, "events/2/value", pointer="/data/n", **{"from": -3}).json()["start"] == 0


def test_an_event_is_cut(api: Api, large: UUID) -> None:
    """Only if that is asked for; ids, time and digest are the same, and small data is as stored."""
    whole, shown = (get(api, large, "events/2", **query).json() for query in ({}, {"cut": "true"}))
    assert "cut" not in whole
    assert whole["data"]["data"] == PAYLOAD
    cuts = {one["pointer"]: (one["kind"], one["total"]) for one in shown.pop("cut")}
    assert cuts == {
        "/data/data/text": ("text", 45_000),
        "/data/data/list": ("list", 450),
        "/data/data/many": ("object", 450),
        "/data/data": ("object", len(PAYLOAD)),  # a name that no pointer can have
    }
    assert shown["data"]["data"]["text"] == LONG[:2000]
    del whole["data"], shown["data"]
    assert whole == shown
    first, first_cut = (get(api, large, "events/1", **query) for query in ({}, {"cut": "true"}))
    assert first_cut.json() == {**first.json(), "cut": []}
    assert msgspec.json.encode(first.json()["data"]) in first_cut.content


def test_the_event_that_is_blamed_is_cut(api: Api) -> None:
    """Only if that is asked for: a value may be one of an event of megabytes."""
    run = api.new_run()
    event = SliceEventApplied(slice="a", event_type="shop.A", operation="seed", payload=[LONG])
    api.ledger.append(run, event, ANY)
    query = {"pointer": "/slices/a/0"}
    whole = get(api, run, "blame", **query).json()
    shown = get(api, run, "blame", **query, cut="true").json()
    assert (whole["version"], whole["data"]["payload"], "cut" in whole) == (2, [LONG], False)
    assert shown["data"]["payload"] == [LONG[:2000]]
    assert shown["cut"] == [{"pointer": "/data/payload/0", "kind": "text", "total": 45_000}]


def test_views_and_changes_are_cut(api: Api) -> None:
    """Pointers name places in the answer; what is not asked to be cut stays as it was."""
    run = api.new_run()
    events = [
        EvaluationStarted(evaluation_id="e1", prompt_ns="n", prompt_key="k", prompt_digest="d"),
        *(
            MessageAppended(
                message=InnerMessage(role=role, content=LONG, evaluation_id="e1", sequence=n)
            )
            for n, role in enumerate(ROLES)
        ),
    ]
    at = api.ledger.append(run, events, ANY).version
    for path in ("state/history", "messages"):
        body = get(api, run, path, cut="true").json()
        pointers = {one["pointer"].split("/")[1]: one for one in body["cut"]}
        assert {name: one["total"] for name, one in pointers.items()} == {
            "items": 45_000,
            "rest": 45_000,
        }
        assert LONG in get(api, run, path).text
    for path, query in (("changes", {"at": at}), ("diff", {"from": 0, "to": at})):
        body = get(api, run, path, cut="true", **query).json()
        assert body["cut"]
        assert all(one["pointer"].startswith("/changes/") for one in body["cut"])
        assert LONG not in str(body)
        assert "cut" not in get(api, run, path, **query).json()


def test_changes_of_a_value_in_pages(api: Api) -> None:
    """Newest first, with what it was and became; the last page has no next one."""
    info = max(api.ledger.runs(), key=lambda one: one.version)
    found: list[Any] = []
    following: int | None = info.version + 1
    while following is not None:
        page = get(
            api,
            info.run_id,
            "value/changes",
            pointer="/usage/total/calls",
            limit=2,
            before=following,
        ).json()
        found += page["changes"]
        following = page["next"]
    whole = get(api, info.run_id, "value/changes", pointer="/usage/total/calls", limit=200)
    assert whole.json() == {"changes": found, "next": None, "cut": []}
    versions = [one["version"] for one in found]
    assert versions == sorted(set(versions), reverse=True)
    assert {one["op"] for one in found} == {"replace"}
    for one, earlier in pairwise(found):
        assert one["was"] == earlier["value"]


def test_changes_of_a_large_value_are_cut(api: Api, large: UUID) -> None:
    """A list of the run is named with its length, not sent with each event that changed it."""
    run = max(api.ledger.runs(), key=lambda one: one.version).run_id
    body = get(api, run, "value/changes", pointer="/history/turns").json()
    cuts = {one["pointer"]: one for one in body["cut"]}
    for place, one in enumerate(body["changes"]):
        assert one["value"] == []
        assert cuts[f"/changes/{place}/value"]["kind"] == "list"
    nothing = get(api, large, "value/changes", pointer="/tools/0").json()
    assert nothing == {"changes": [], "next": None, "cut": []}


def test_a_search_for_changes_ends_in_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where to go on, and goes on from there."""
    run = api.new_run()
    for _ in range(2):
        api.ledger.append(run, [CustomEvent(kind="shop.note")] * 300, ANY)
    monkeypatch.setattr(values, "SECONDS", -1.0)
    following, asked = None, []
    while True:
        query = {} if following is None else {"before": following}
        page = get(api, run, "value/changes", pointer="/summary/status", **query).json()
        following = page["next"]
        asked.append(following)
        if following is None:
            break
    assert asked == [501, 251, None]


def test_no_such_value(api: Api, large: UUID) -> None:
    """A pointer that names nothing, in a state and in an event; one that is not a pointer."""
    for path, status in (
        ("value?pointer=/nothing", 404),
        ("value?pointer=/tools/17", 404),
        ("value?pointer=/tools/-", 404),
        ("value?pointer=/prompt", 404),
        ("value?at=99", 404),
        ("events/2/value?pointer=/data/list/x", 404),
        ("events/99/value", 404),
        ("value?pointer=tools", 422),
        ("value/changes", 422),
        ("value/changes?pointer=/nothing", 422),
        ("value?limit=201", 422),
    ):
        response = api.call("GET", f"/v1/runs/{large}/{path}")
        assert response.status_code == status, (path, response.text)


def test_a_state_that_the_client_has(api: Api, large: UUID) -> None:
    """It is not sent again; of a fixed version it may be kept for ever."""
    found = get(api, large, "value")
    again = api.call(
        "GET", f"/v1/runs/{large}/value", headers={"if-none-match": found.headers["etag"]}
    )
    assert again.status_code == 304
    assert "immutable" in get(api, large, "value", at=1).headers["cache-control"]
