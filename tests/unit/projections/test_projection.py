"""What holds for every view and any sequence of events: folds are pure, total and values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.samples import one_of_each
from tests.unit.ledger.strategies import events as events_of
from tests.unit.projections import forked_runs
from tests.unit.projections.given import asks, completes, records, replies, starts
from tests.unit.projections.random_runs import declarations, runs
from turnledger.ledger import Event, Ledger, Record, RunStarted
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.events.upcasters import UPCASTERS
from turnledger.projections import (
    Declarations,
    Projection,
    RunState,
    fold,
    fold_together,
    projection,
)
from turnledger.projections.projection import tags_read
from turnledger.projections.run_state.state import built_in

VIEWS = [type(view) for view in built_in()]


def initial(declared: bool) -> RunState:
    return RunState.initial(declarations() if declared else None)


def same(one: RunState, other: RunState) -> bool:
    return (one.version, one.state_digest, one.outcome_digest, one.to_json()) == (
        other.version,
        other.state_digest,
        other.outcome_digest,
        other.to_json(),
    )


@settings(max_examples=50)
@given(runs, st.booleans())
def test_every_prefix_of_any_run_folds_and_has_json_and_digests(
    events: list[Event], declared: bool
) -> None:
    """Total over every event of the catalogue, in any order."""
    state = initial(declared)
    for record in records(events):
        state = state.after([record])
        assert len(state.state_digest) == len(state.outcome_digest) == 64
        assert json.loads(json.dumps(state.to_json())) == state.to_json()
        state.conversation.history().for_send()
        state.tools.pending()


@pytest.mark.parametrize("tag", sorted(EVENT_TYPES))
@settings(max_examples=15)
@given(data=st.data())
def test_an_event_of_any_kind_folds_alone_and_after_one_of_each(
    tag: str, data: st.DataObject
) -> None:
    """Whatever is in its fields."""
    event = data.draw(events_of(EVENT_TYPES[tag]))
    alone = initial(declared=True).after(records([event]))
    assert alone.version == 1
    begin = records([RunStarted(), *one_of_each()])
    later = initial(declared=True).after(begin).after(records([event], after=len(begin)))
    assert later.state_digest


@given(runs, st.booleans(), st.integers(0, 40))
def test_folding_in_two_halves_is_folding_at_once(
    events: list[Event], declared: bool, cut: int
) -> None:
    """From the state in the middle, whether or not somebody looked at it."""
    given_records = records(events)
    whole = initial(declared).after(given_records)
    middle = initial(declared).after(given_records[:cut])
    unseen = middle.after(given_records[cut:])
    assert middle.state_digest
    assert middle.to_json()
    seen = middle.after(given_records[cut:])
    assert same(whole, unseen)
    assert same(whole, seen)


@given(runs, st.booleans())
def test_the_digest_is_a_function_of_the_events_alone(events: list[Event], declared: bool) -> None:
    """Asked for at each step or only at the end; folded again from other record objects."""
    stepwise = initial(declared)
    for record in records(events):
        stepwise = stepwise.after([record])
        assert stepwise.state_digest == stepwise.state_digest
    assert same(stepwise, initial(declared).after(records(events)))


@given(runs, st.booleans())
def test_older_states_stay_as_they_were(events: list[Event], declared: bool) -> None:
    """Each step gives a new state beside the old ones."""
    states = [initial(declared)]
    for record in records(events):
        states.append(states[-1].after([record]))
    before = [(state.to_json(), state.state_digest) for state in states]
    branch = [state.after(records([replies(1, input_tokens=1)], after=99)) for state in states]
    assert all(one.version == 100 for one in branch)
    assert [(state.to_json(), state.state_digest) for state in states] == before


def outline(states: Sequence[Any]) -> tuple[object, ...]:
    """What the states of the built-in views hold beyond their JSON and digests."""
    conversation, tools, timeline = states[0], states[1], states[6]
    return (
        list(conversation.messages),
        [tools.first.get(name) for name in ("", "e1", "e2")],
        (tools.last_turn, sorted(tools.open.items()), sorted(tools.ended.items())),
        (list(timeline.reaches), list(timeline.spans), list(timeline.workers)),
        (timeline.evaluation_id, timeline.step_num, timeline.seen),
    )


def assert_bulk_is_steps(given_records: Sequence[Record], declared: Declarations) -> None:
    """Fold in pages of all views together, and by `apply` of each view alone."""
    views: tuple[Projection[Any], ...] = built_in(declared)
    steps = [view.initial() for view in views]
    for record in given_records:
        for place, view in enumerate(views):
            if record.tag in tags_read(view):
                steps[place] = view.apply(steps[place], record)
    with patch.object(projection, "PAGE", 7):
        bulk = fold_together(iter(given_records), views)
    for view, step, whole in zip(views, steps, bulk, strict=True):
        assert view.to_json(step) == view.to_json(whole)
        assert (view.digest(step), view.outcome(step)) == (view.digest(whole), view.outcome(whole))
    assert outline(steps) == outline(bulk)


@given(forked_runs.events, forked_runs.branches)
def test_a_bulk_fold_of_any_run_and_its_forks_is_its_steps(
    first: list[Event], others: list[forked_runs.Branch]
) -> None:
    """The same states, page by page or record by record, along every lineage."""
    with Ledger.open("memory://") as ledger:
        for run in forked_runs.recorded(ledger, first, others):
            assert_bulk_is_steps(list(ledger.read(run)), declarations())


@given(st.lists(st.integers(1, 45), max_size=120))
def test_a_bulk_fold_with_many_calls_at_once_is_its_steps(numbers: list[int]) -> None:
    """A call begins when its number comes first and ends when it comes again, up to 45 at once."""
    events: list[Event] = [asks(n, f"c{n}", turn=n) for n in range(1, 46)]
    events += [starts(f"c{n}") for n in range(1, 41)]
    begun = set(range(1, 41))
    for number in numbers:
        events.append((completes if number in begun else starts)(f"c{number}"))
        begun ^= {number}
    assert_bulk_is_steps(records(events), Declarations())


@given(runs)
def test_several_projections_in_one_pass_are_each_alone(events: list[Event]) -> None:
    """From the beginning, and from states in the middle."""
    views: tuple[Projection[Any], ...] = built_in(declarations())
    given_records = records(events)
    together = fold_together(given_records, views)
    middle = fold_together(given_records[:5], views)
    in_halves = fold_together(given_records[5:], views, middle)
    for view, state, other in zip(views, together, in_halves, strict=True):
        alone = fold(given_records, view)
        assert view.digest(alone) == view.digest(state) == view.digest(other)
        assert view.to_json(alone) == view.to_json(state)


@pytest.mark.parametrize("view", VIEWS, ids=[view.name for view in VIEWS])
def test_a_view_says_what_it_is(view: type[Projection[Any]]) -> None:
    """A name of its own, a version, what it reads; another state has another digest."""
    assert sum(other.name == view.name for other in VIEWS) == 1
    assert view.version >= 1
    assert set(view.reads) <= set(EVENT_TYPES.values())
    assert view.__doc__


@pytest.mark.parametrize("view", VIEWS, ids=[view.name for view in VIEWS])
def test_a_view_reads_the_retired_tags_of_what_it_reads(view: type[Projection[Any]]) -> None:
    """What was written once counts for ever."""
    tags = tags_read(view())
    for retired, step in UPCASTERS.items():
        assert (retired in tags) == (step.successor in tags)
    assert {kind.tag for kind in view.reads} <= tags


class Counting(Projection[int]):
    """Counts what it is handed; everything else of it is what a projection has by default."""

    name = "counting"
    reads = (RunStarted,)

    def initial(self) -> int:
        return 0

    def apply(self, state: int, record: Record) -> int:
        assert isinstance(record.event, RunStarted)
        return state + 1


def test_a_projection_of_ones_own_needs_only_its_two_methods() -> None:
    """JSON, digest and outcome follow; it is handed only what it reads."""
    view = Counting()
    state = fold(records([RunStarted(), *one_of_each(), RunStarted()]), view)
    assert (state, view.to_json(state), view.outcome(state)) == (2, 2, b"")
    assert view.digest(2) == view.digest(state) != view.digest(3)


def test_a_new_version_of_a_projection_has_other_digests() -> None:
    """A state of an older meaning is never taken for one of today's."""

    class Newer(Counting):
        version = 2

    assert Newer().digest(1) != Counting().digest(1)


def test_declarations_belong_to_the_program_and_not_to_the_fold() -> None:
    """Folding declares nothing."""
    declared = Declarations()
    RunState.initial(declared).after(records([RunStarted(), *one_of_each()]))
    assert declared.reducer("plan", "Step") is None
    assert declared.value("plan", {"n": 1}) == {"n": 1}


def test_the_projection_of_the_how_to_page_has_less_than_twenty_lines() -> None:
    """Imports included; tests/unit/test_docs.py runs it."""
    page = (Path(__file__).parents[3] / "docs/how-to/write-a-projection.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    assert "(Projection[" in example
    assert len([line for line in example.splitlines() if line.strip()]) < 20
