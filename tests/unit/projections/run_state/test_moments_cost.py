"""What a step and a window cost, counted and not timed: late in a run what they cost early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from statistics import median
from typing import Any

import pytest

from tests.unit.projections.given import record
from tests.unit.projections.random_runs import declarations
from tests.unit.projections.views.test_views_cost import (
    amended_each_time,
    calls_of,
    durable_steps,
    many_evaluations,
    one_growing_slice,
    talk_after_one_tool,
    usual,
)
from turnledger.ledger import Event
from turnledger.projections import RunState, window
from turnledger.projections.history.message_history import listed_turns
from turnledger.projections.run_state.changes import step_changes

EARLY, LATE, STEPS = 400, 9_000, 64
# A tree is one level deeper, and the sizes of its tails differ.
MORE_CALLS, MORE_AT_ALL = 1.3, 80
RUNS = (
    usual,
    durable_steps,
    talk_after_one_tool,
    many_evaluations,
    amended_each_time,
    one_growing_slice,
)


def state_after(run: Callable[[], Iterator[Event]], at: int) -> tuple[RunState, list[Any]]:
    """A run's state at an event, as moments have it, and the records that follow."""
    records = [record(event, version) for version, event in enumerate(islice(run(), at + STEPS), 1)]
    state = RunState.initial(declarations())
    for start in range(0, at, 200):
        state = state.after(records[start : min(start + 200, at)])
        listed_turns(state.history)
    return state, records[at:]


def step_prices(run: Callable[[], Iterator[Event]], at: int) -> dict[str, float]:
    """Calls that comparing two states takes, by the kind of event between them."""
    before, records = state_after(run, at)
    prices: dict[str, list[int]] = {}
    for one in records:
        after = before.after((one,))
        prices.setdefault(one.tag, []).append(
            calls_of(lambda a=before, b=after: step_changes(a, b))  # type: ignore[misc]
        )
        before = after
    return {tag: median(found) for tag, found in prices.items()}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_step_late_in_a_run_costs_what_an_early_one_costs(run: Any) -> None:
    """Whatever grows: conversations, calls, evaluations, slices. A turn is one item of a list."""
    early, late = step_prices(run, EARLY), step_prices(run, LATE)
    assert early.keys() & late.keys()
    for tag in early.keys() & late.keys():
        assert late[tag] <= early[tag] * MORE_CALLS + MORE_AT_ALL, (tag, early, late)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_window_of_a_long_list_costs_what_one_of_a_short_list_costs(run: Any) -> None:
    """Of every list of every view but gaps, which follow from all spans."""
    early, late = state_after(run, EARLY)[0], state_after(run, LATE)[0]
    for view in late.lazy_json():
        for name in window(late, view, limit=0).lists or (view,):
            total, more = (window(state, name, limit=0).total for state in (early, late))
            if name == "timeline/gaps" or (total and total < 20):
                continue
            few = calls_of(lambda n=name, t=total: window(early, n, t // 2, 10))  # type: ignore[misc]
            many = calls_of(lambda n=name, t=more: window(late, n, t // 2, 10))  # type: ignore[misc]
            assert many <= few * MORE_CALLS + MORE_AT_ALL, (name, few, many)


def test_a_cost_that_grows_is_noticed() -> None:
    """The counting can fail: what makes all items shows in calls."""
    early, late = (state_after(usual, at)[0] for at in (EARLY, LATE))
    few, many = (calls_of(state.to_json) for state in (early, late))
    assert many > few * MORE_CALLS + MORE_AT_ALL
