"""Lists of runs over HTTP: by parent, and with details of each run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.adapters.http.calling import Api
from tests.unit.projections.given import doubts, replies
from turnledger.adapters.http.routes.index import facets as facets_route
from turnledger.adapters.http.routes.index import run_details
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    ModelReplied,
    RunCompleted,
    RunStarted,
    new_run_id,
)


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


def listed(api: Api, **query: Any) -> Any:
    response = api.call("GET", "/v1/runs", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_runs_of_a_parent(api: Api) -> None:
    """Its forks; none of a run that has none, or is not there."""
    run = api.new_run()
    fork = api.ledger.fork(run, 1)
    assert [one["run_id"] for one in listed(api, parent=run)["runs"]] == [str(fork)]
    assert listed(api, parent=fork)["runs"] == []


def facets(api: Api, **query: Any) -> Any:
    response = api.call("GET", "/v1/facets", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def shop(api: Api) -> None:
    """Four runs with tags, of two agents; one has completed."""
    for number, (team, agent) in enumerate((("red", "ann"), ("red", "bob"), ("blue", "bob"))):
        started = RunStarted(tags={"team": team, "n": str(number)}, agent=agent)
        run = new_run_id()
        api.ledger.append(run, started, NEW)
    api.ledger.append(run, RunCompleted(), ANY)
    api.new_run()


def test_facets_count_what_runs_have(api: Api) -> None:
    """Of all runs, or of those that a filter names; the most frequent first."""
    shop(api)
    assert facets(api) == {
        "statuses": {"running": 3, "completed": 1},
        "agents": {"bob": 2, "ann": 1},
        "prompts": {},
        "tags": {"team": {"red": 2, "blue": 1}, "n": {"2": 1, "1": 1, "0": 1}},
        "complete": True,
    }
    assert list(facets(api)["agents"]) == ["bob", "ann"]
    bob = facets(api, agent="bob", tag="team=red")
    assert (bob["statuses"], bob["tags"]["n"]) == ({"running": 1}, {"1": 1})
    nothing = facets(api, agent="eve")
    assert (nothing["statuses"], nothing["complete"]) == ({}, True)
    both = api.call("GET", "/v1/facets", params={"tag": ["team=red", "team=blue"]}).json()
    assert both["statuses"] == {}


@pytest.mark.parametrize(
    ("limit", "value"), [("MOST_RUNS", 3), ("MOST_VALUES", 2), ("MOST_BYTES", 60)]
)
def test_facets_say_what_they_leave_out(
    api: Api, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """More runs, more values, or more text than there is room for."""
    shop(api)
    monkeypatch.setattr(facets_route, limit, value)
    assert not facets(api)["complete"]


def test_details_of_each_run(api: Api) -> None:
    """Tokens, a small shape, and whether its worker is alive; only if they are asked for."""
    reply = replies()
    assert isinstance(reply, ModelReplied)
    run, quiet, dead = api.new_run(), api.new_run(), api.new_run()
    api.ledger.append(run, [reply, doubts("c")], ANY)
    claim = api.ledger.claim(run, worker="w", ttl=timedelta(hours=1), key="k" * 32)
    api.ledger.claim(dead, worker="w", ttl=timedelta(0), key="k" * 32)
    assert "details" not in listed(api)
    details = listed(api, details="true")["details"]
    info = api.ledger.run(run)
    assert details[str(run)] == {
        "tokens": reply.usage.input_tokens + reply.usage.output_tokens,
        "worker": "live",
        "shape": "^r?w",
        "seconds": (info.updated_at - info.started_at).total_seconds(),
    }
    assert details[str(quiet)]["worker"] == "none"
    assert details[str(dead)]["worker"] == "dead"
    claim.release()
    assert listed(api, details="true")["details"][str(run)]["worker"] == "none"


def test_details_of_long_runs_come_when_they_are_read(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list does not wait for them; it says that they are missing, and goes on the next time."""
    run = api.new_run()
    api.ledger.append(run, [CustomEvent(kind="shop.note")] * 1000, ANY)
    monkeypatch.setattr(run_details, "SECONDS", -1.0)
    late = listed(api, details="true")["details"][str(run)]
    assert (late["tokens"], late["shape"]) == (None, "")
    monkeypatch.undo()
    found = listed(api, details="true")["details"][str(run)]
    assert (found["tokens"], len(found["shape"])) == (0, 32)
