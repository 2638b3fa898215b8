"""Comparisons over HTTP: slices of what the Python function gives, made once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.conformance.samples import message
from tests.unit.adapters.http.calling import Api
from turnledger.adapters.http.routes import compare as route
from turnledger.ledger import ANY, NEW, CustomEvent, RunStarted, new_run_id
from turnledger.projections import compare


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as made:
        yield made


@pytest.fixture
def runs(api: Api) -> tuple[UUID, UUID]:
    """A run and its fork, which differ in two of three events; one of them is large."""
    run = api.new_run()
    fork = api.ledger.fork(run, 1)
    for one, texts in ((run, ("a", "same", "x" * 5000)), (fork, ("b", "same", "y" * 5000))):
        notes = [CustomEvent(kind="shop.note", data={"text": text}) for text in texts]
        api.ledger.append(one, notes, ANY)
    return run, fork


def compared(api: Api, runs: tuple[UUID, UUID], **query: Any) -> Any:
    response = api.call("GET", "/v1/compare", params={"a": runs[0], "b": runs[1], **query})
    assert response.status_code == 200, response.text
    return response.json()


def test_slices_together_are_the_comparison(api: Api, runs: tuple[UUID, UUID]) -> None:
    """Each says how many rows there are in all, and which of them differ."""
    whole = compared(api, runs)
    made = msgspec.json.decode(msgspec.json.encode(compare(api.ledger, *runs)))
    assert {name: whole[name] for name in made} == made
    assert whole["total"] == len(made["rows"])
    assert [made["rows"][n]["kind"] for n in whole["differences"]] == ["changed", "changed"]
    assert whole["divergence"]["rows"] == whole["differences"][:1]
    assert whole["complete"]
    rows = []
    for start in range(whole["total"]):
        part = compared(api, runs, **{"from": start, "limit": 1})
        rows += part["rows"]
        assert part["after"] == [
            max((row[side] or 0 for row in whole["rows"][:start]), default=0)
            for side in ("first", "second")
        ]
        own = {"rows": [], "start": 0, "after": []}
        assert {**part, **own} == {**whole, **own}
    assert rows == whole["rows"]
    assert compared(api, runs, **{"from": 99, "limit": 5})["rows"] == []


def test_large_changes_are_cut(api: Api, runs: tuple[UUID, UUID]) -> None:
    """They are named with their length."""
    found = compared(api, runs, cut="true")
    assert {one["total"] for one in found["cut"]} == {5000}
    assert all(one["pointer"].startswith("/rows/") for one in found["cut"])


def test_runs_are_compared_once_until_they_grow(
    api: Api, runs: tuple[UUID, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages come from what is kept; an event more is compared again."""
    made: list[Any] = []

    def counted(*args: Any) -> Any:
        made.append(args)
        return compare(*args)

    monkeypatch.setattr(route, "compare", counted)
    for start in range(3):
        compared(api, runs, **{"from": start, "limit": 1})
    assert len(made) == 1
    api.ledger.append(runs[0], CustomEvent(kind="shop.note"), ANY)
    grown = compared(api, runs)
    assert (len(made), grown["rows"][-1]["kind"]) == (2, "only_first")
    monkeypatch.setattr(route, "MOST_ROWS", 1)
    compared(api, (runs[1], runs[0]))
    compared(api, (runs[1], runs[0]))
    assert len(made) == 4


@pytest.mark.parametrize(("most", "times"), [(100_000, 1), (1_000, 2)])
def test_few_bytes_of_changes_are_kept(
    api: Api, most: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two events may differ in megabytes: the memory does not grow with what was compared."""
    runs = (new_run_id(), new_run_id())
    for run, text in zip(runs, ("a" * 5_000, "b" * 5_000), strict=True):
        api.ledger.append(run, [RunStarted(), CustomEvent(kind="shop.note", data=text)], NEW)
    made: list[Any] = []
    monkeypatch.setattr(route, "compare", lambda *args: (made.append(args), compare(*args))[1])
    monkeypatch.setattr(route, "MOST_BYTES", most)
    first, second = compared(api, runs), compared(api, runs)
    assert first == second
    assert len(made) == times


def test_many_differences_are_not_all_listed(
    api: Api, runs: tuple[UUID, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones, and that there are more."""
    monkeypatch.setattr(route, "MOST_DIFFERENCES", 1)
    found = compared(api, runs)
    assert (len(found["differences"]), found["complete"]) == (1, False)


def states(api: Api, runs: tuple[UUID, UUID], at: int, other_at: int, **query: Any) -> Any:
    params = {"a": runs[0], "a_at": at, "b": runs[1], "b_at": other_at, **query}
    return api.call("GET", "/v1/compare/state", params=params)


def test_states_differ_in_what_the_runs_did(api: Api) -> None:
    """Ids, times and workers always differ, and are not among the differences."""
    runs = api.new_run(), api.new_run()
    for run, text in zip(runs, ("yes", "no"), strict=True):
        said = [message("Well?", 0, message_id=uuid4()), message(text, 1, message_id=uuid4())]
        api.ledger.append(run, said, ANY)
    head = api.ledger.head(runs[0])
    found = states(api, runs, head, head).json()
    assert found == {
        "first_version": head,
        "second_version": head,
        "changes": [
            {"op": "replace", "path": "/history/turns/0/blocks/1/text", "was": "yes", "value": "no"}
        ],
        "complete": True,
    }
    assert states(api, runs, head - 1, head - 1).json()["changes"] == []
    assert states(api, runs, head, 0).json()["changes"]


def test_differences_of_states_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond the most are left out, which the answer says; large values are cut."""
    runs = api.new_run(), api.new_run()
    api.ledger.append(runs[0], message("x" * 3000), ANY)
    head = api.ledger.head(runs[0])
    found = states(api, runs, head, 0, cut="true").json()
    assert (len(found["changes"]), found["complete"]) == (1, True)
    assert [one["total"] for one in found["cut"]] == [3000]
    monkeypatch.setattr(route, "MOST_CHANGES", 0)
    found = states(api, runs, head, 0).json()
    assert (found["changes"], found["complete"]) == ([], False)


def test_a_version_that_is_not_there_is_refused(api: Api, runs: tuple[UUID, UUID]) -> None:
    """The problem names it."""
    answer = states(api, runs, 1, 99)
    assert answer.status_code == 404
    assert "99" in answer.json()["detail"]
