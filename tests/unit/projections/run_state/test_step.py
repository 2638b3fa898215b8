"""Steps: what one event changed, as a patch that leads from the state before to the one after."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

import jsonpatch
import pytest
from hypothesis import given, settings

from benchmarks.long_events import declarations as long_declarations
from benchmarks.long_events import long_run
from tests.unit.projections.forked_runs import Branch, branches, events, recorded
from tests.unit.projections.random_runs import declarations
from turnledger.ledger import (
    NEW,
    Event,
    InvalidInputError,
    Ledger,
    RecordNotFoundError,
    RunNotFoundError,
    RunStarted,
    new_run_id,
)
from turnledger.projections import Change, Moments, RunState, state_at, state_json, step
from turnledger.projections.digests import canonical
from turnledger.projections.persistent import lazy_json


def without_gaps(state: Any) -> Any:
    del state["timeline"]["gaps"]
    return state


@settings(max_examples=60)
@given(events, branches)
def test_a_step_applied_to_the_state_before_gives_the_state_after(
    first: list[Event], others: list[Branch]
) -> None:
    """At every version of every run of a family, with moments and without."""
    with Ledger.open("memory://") as ledger:
        moments = Moments(ledger, declarations=declarations())
        for run in recorded(ledger, first, others):
            before = without_gaps(RunState.initial().to_json())
            for version in range(1, ledger.head(run) + 1):
                found = step(ledger, run, version, moments=moments)
                assert found == step(ledger, run, version, declarations=declarations())
                after = without_gaps(state_json(ledger, run, version, declarations=declarations()))
                patched = jsonpatch.apply_patch(before, found.patch())
                assert canonical(patched) == canonical(after)
                assert found.version == version
                before = after


def test_a_step_has_the_places_of_what_it_changed(ledger: Ledger) -> None:
    """Not places among what two states do not share."""
    run = new_run_id()
    ledger.append(run, list(long_run(300)), NEW)
    tags = {record.tag: record.version for record in ledger.read(run, after=200)}
    reached = step(ledger, run, tags["checkpoint.reached"])
    before = state_at(ledger, run, tags["checkpoint.reached"] - 1)
    added = f"/checkpoints/entries/{len(before.checkpoints.entries)}"
    assert [change.path for change in reached.changes if change.op == "add"] == [added]
    replied = step(ledger, run, tags["model.replied"])
    span = len(state_at(ledger, run, tags["model.replied"]).timeline.spans) - 1
    assert Change("replace", f"/timeline/spans/{span}/outcome", "running", "ok") in replied.changes


def test_a_step_makes_only_what_it_changed(ledger: Ledger, monkeypatch: Any) -> None:
    """However long the lists are of which it changes an item: what is made is counted."""
    run = new_run_id()
    for batch in batched(long_run(2_400), 400):
        ledger.append(run, batch, NEW if batch[0].tag == RunStarted.tag else ledger.head(run))
    moments = Moments(ledger, declarations=long_declarations())
    made: list[int] = []
    monkeypatch.setattr(lazy_json.LazyList, "__iter__", None)
    at, after = lazy_json.LazyList.at, lazy_json.LazyList.after

    def counted_at(self: Any, place: int) -> Any:
        made.append(place)
        return at(self, place)

    def counted_after(self: Any, count: int) -> Iterator[Any]:
        for value in after(self, count):
            made.append(count)
            yield value

    monkeypatch.setattr(lazy_json.LazyList, "at", counted_at)
    monkeypatch.setattr(lazy_json.LazyList, "after", counted_after)
    for version in range(2_301, 2_401):
        made.clear()
        found = step(ledger, run, version, moments=moments)
        # A slice that is replaced as a whole has 20 items, of which two are compared.
        assert len(made) <= 2 * len(found.changes) + 4, (version, found)


def batched(found: Iterator[Event], size: int) -> Iterator[list[Event]]:
    while batch := list(islice(found, size)):
        yield batch


@pytest.mark.parametrize("version", [0, -1, 4, 10**12])
def test_a_step_to_a_version_that_is_not_there_is_an_error(ledger: Ledger, version: int) -> None:
    """It says how far the run goes; the first version is 1."""
    run = new_run_id()
    ledger.append(run, list(long_run(3)), NEW)
    for moments in (None, Moments(ledger)):
        with pytest.raises(RecordNotFoundError, match="1 to 3"):
            step(ledger, run, version, moments=moments)
        with pytest.raises(RunNotFoundError):
            step(ledger, new_run_id(), 1, moments=moments)


def test_moments_are_those_of_the_ledger_and_have_its_declarations(ledger: Ledger) -> None:
    """A step of another ledger's states would be wrong without a word."""
    run: UUID = new_run_id()
    ledger.append(run, RunStarted(), NEW)
    with (
        Ledger.open("memory://") as other,
        pytest.raises(InvalidInputError, match="another ledger"),
    ):
        step(ledger, run, 1, moments=Moments(other))
    with pytest.raises(InvalidInputError, match="Moments\\(declarations=\\)"):
        step(ledger, run, 1, moments=Moments(ledger), declarations=declarations())
