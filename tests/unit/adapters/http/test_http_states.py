"""States, changes, shapes and searches over HTTP are those of the Python functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import pytest

from tests.unit.adapters.http.calling import Api
from turnledger.ledger import import_runs, new_run_id
from turnledger.projections import shape, state_at

HISTORIES = Path(__file__).parents[3] / "replay" / "histories"
# One with tools that fail, and one with a fork.
FILES = sorted(HISTORIES.glob("*.jsonl"))[::9]
VIEWS = ("history", "tools", "slices", "checkpoints", "usage", "summary", "timeline")


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with Api() as made:
        for path in FILES:
            with path.open("rb") as file:
                import_runs(made.ledger, file)
        yield made


def get(api: Api, run: Any, path: str, **query: Any) -> httpx.Response:
    response = api.call("GET", f"/v1/runs/{run}/{path}", params=query)
    assert response.status_code == 200, response.text
    return response


def state_of(api: Api, run: Any, at: int) -> Any:
    """The state as JSON, without the gaps of the timeline, as steps are of it."""
    made = state_at(api.ledger, run, at, declarations=api.app.served.declarations).to_json()
    made.get("timeline", {}).pop("gaps", None)
    return made


def test_changes_lead_from_each_version_to_the_next(api: Api) -> None:
    """As a JSON Patch that any library applies; what can't change may be kept for ever."""
    for info in api.ledger.runs():
        before = state_of(api, info.run_id, 0)
        for version in range(1, info.version + 1):
            found = get(api, info.run_id, "changes", at=version)
            assert "immutable" in found.headers["cache-control"]
            patch = [
                {name: one[name] for name in ("op", "path", "value") if name in one}
                for one in found.json()["changes"]
            ]
            after = state_of(api, info.run_id, version)
            assert jsonpatch.apply_patch(before, patch) == after, (info.run_id, version)
            before = after


def test_windows_together_are_the_view(api: Api) -> None:
    """At any version, whatever the size of a window."""
    for info in api.ledger.runs():
        for version in {1, info.version // 2 or 1, info.version}:
            whole = state_at(
                api.ledger, info.run_id, version, declarations=api.app.served.declarations
            ).to_json()
            for view in VIEWS:
                assert viewed(api, info.run_id, view, version) == whole[view], (view, version)


def viewed(api: Api, run: Any, view: str, version: int) -> Any:
    first = get(api, run, f"state/{view}", at=version, limit=1).json()
    if first["lists"] == [view]:
        return items(api, run, f"state/{view}", version)
    made = dict(first["rest"])
    for name in first["lists"]:
        made[name.partition("/")[2]] = items(
            api, run, f"state/{view}", version, list=name.partition("/")[2]
        )
    return made


def items(api: Api, run: Any, path: str, version: int, **query: Any) -> list[Any]:
    made, total = list[Any](), 1
    while len(made) < total:
        body = get(api, run, path, at=version, limit=3, **{"from": len(made)}, **query).json()
        made, total = made + body["items"], body["total"]
    return made


@pytest.mark.parametrize(
    ("path", "view"),
    [("messages", "history"), ("tools", "tools"), ("timeline", "timeline"), ("usage", "usage")],
)
def test_short_names_of_views(api: Api, path: str, view: str) -> None:
    """They answer what the view answers, and say if the client has it."""
    run = next(api.ledger.runs()).run_id
    found = get(api, run, path)
    assert found.json() == get(api, run, f"state/{view}").json()
    headers = {"if-none-match": found.headers["etag"]}
    assert api.call("GET", f"/v1/runs/{run}/{path}", headers=headers).status_code == 304


def test_a_diff_in_either_direction(api: Api) -> None:
    """What it lists leads from one state to the other."""
    info = max(api.ledger.runs(), key=lambda one: one.version)
    for one, other in ((1, info.version), (info.version, 1), (2, 2)):
        body = get(api, info.run_id, "diff", **{"from": one, "to": other}).json()
        assert body["complete"]
        before, after = (
            state_at(api.ledger, info.run_id, at, declarations=api.app.served.declarations)
            for at in (one, other)
        )
        patch = [
            {name: change[name] for name in ("op", "path", "value") if name in change}
            for change in body["changes"]
        ]
        assert jsonpatch.apply_patch(before.to_json(), patch) == after.to_json()


def test_shapes_and_searches(api: Api) -> None:
    """Those of the functions, in pages."""
    info = next(api.ledger.runs())
    assert get(api, info.run_id, "shape").json() == {
        "version": info.version,
        "shape": shape(api.ledger, info.run_id).text,
    }
    found = get(api, info.run_id, "search", q="run.", limit=1).json()
    assert found["hits"][0]["version"] <= info.version
    everywhere = api.call("GET", "/v1/search", params={"q": "run.started"}).json()
    assert {one["run_id"] for one in everywhere["hits"]} >= {str(info.run_id)}


def test_what_is_not_there(api: Api) -> None:
    """A run, a version, a list: each is a problem that says which."""
    run, none = next(api.ledger.runs()).run_id, new_run_id()
    for path, kind in (
        (f"{none}/state/tools", "run-not-found"),
        (f"{none}/changes?at=1", "run-not-found"),
        (f"{none}/shape", "run-not-found"),
        (f"{none}/lineage", "run-not-found"),
        (f"{run}/state/tools?at=99999", "event-not-found"),
        (f"{run}/changes?at=99999", "event-not-found"),
        (f"{run}/diff?from=1&to=99999", "event-not-found"),
        (f"{run}/state/tools?list=nothing", "not-found"),
        (f"{run}/blame?pointer=/usage/nothing", "not-found"),
    ):
        response = api.call("GET", f"/v1/runs/{path}")
        assert response.status_code == 404, (path, response.text)
        assert response.json()["type"].endswith(f":{kind}"), path
    assert api.call("GET", f"/v1/runs/{run}/state/nothing").status_code == 422


def test_runs_are_looked_into(api: Api) -> None:
    """Verified, blamed, compared, exported and traced back to their ancestors."""
    forks = [info for info in api.ledger.runs() if info.parent is not None]
    info = forks[0] if forks else next(api.ledger.runs())
    assert get(api, info.run_id, "verify").json()["ok"]
    blamed = get(api, info.run_id, "blame", pointer="/summary/status").json()
    assert 1 <= blamed["version"] <= info.version
    runs = get(api, info.run_id, "lineage").json()["runs"]
    assert runs[-1]["run"]["run_id"] == str(info.run_id)
    assert (runs[0]["after"], runs[-1]["until"]) == (0, info.version)
    query = {"a": info.run_id, "b": info.run_id}
    assert api.call("GET", "/v1/compare", params=query).json()["divergence"] is None
    exported = get(api, info.run_id, "export")
    assert exported.text.startswith('{"turnledger":')
    assert api.call("GET", "/v1/doubts").status_code == 200


def test_a_conversation_is_its_turns_and_its_calls_at_one_version(api: Api) -> None:
    """One answer for both, with the same bounds, for a client that shows them side by side."""
    run = next(iter(api.ledger.runs())).run_id
    for query in ({"at": 5}, {"from": -3, "limit": 3, "cut": True}):
        both = get(api, run, "conversation", **query)
        assert both.json() == {
            "turns": get(api, run, "messages", **query).json(),
            "tools": get(api, run, "tools", **query).json(),
        }
        assert ("immutable" in both.headers["cache-control"]) is ("at" in query)
