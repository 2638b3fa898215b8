"""Random runs that descend from each other: forks and continuations at any version."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from tests.unit.projections.random_runs import small_world
from turnledger.ledger import ANY, NEW, Event, Ledger, RunStarted, new_run_id


class Branch(NamedTuple):
    """A run that goes on from another: which, after what part of it, how, and its events."""

    parent: int
    part: float
    is_fork: bool
    events: list[Event]


events = st.lists(small_world, min_size=4, max_size=16)
branches = st.lists(
    st.builds(
        Branch,
        st.integers(0, 3),
        st.floats(0, 1),
        st.booleans(),
        st.lists(small_world, max_size=8),
    ),
    max_size=3,
)


def recorded(ledger: Ledger, first: list[Event], others: list[Branch]) -> list[UUID]:
    """The runs, each event of them a commit of its own, so that any may be gone on from."""
    runs = [new_run_id()]
    ledger.append(runs[0], RunStarted(), NEW)
    _append(ledger, runs[0], first)
    for branch in others:
        parent = runs[branch.parent % len(runs)]
        at = 1 + int(branch.part * (ledger.head(parent) - 1))
        go_on = ledger.fork if branch.is_fork else ledger.continuation
        runs.append(go_on(parent, at=at))
        _append(ledger, runs[-1], branch.events)
    return runs


def _append(ledger: Ledger, run: UUID, more: list[Event]) -> None:
    for event in more:
        ledger.append(run, event, ANY)
