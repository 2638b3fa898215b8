"""Which records make up a run."""

from __future__ import annotations

import pytest

from turnledger.ledger import IntegrityFailureError, RunNotFoundError
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.lineage import NO_END, Segment, lineage


def index(**parents: tuple[str | None, int]) -> dict[str, RunRow]:
    return {
        name: RunRow(name, parent=parent, parent_version=at)
        for name, (parent, at) in parents.items()
    }


def test_a_run_without_parent_is_all_its_own() -> None:
    """One segment, without end."""
    assert lineage("a", index(a=(None, 0)).get) == [Segment("a", 0, NO_END)]


def test_segments_are_read_oldest_first_and_meet() -> None:
    """Each ends where the next begins."""
    runs = index(a=(None, 0), b=("a", 5), c=("b", 9))
    assert lineage("c", runs.get) == [
        Segment("a", 0, 5),
        Segment("b", 5, 9),
        Segment("c", 9, NO_END),
    ]


def test_a_fork_before_its_parent_began_skips_the_parent() -> None:
    """Of a run that contributes nothing there is no segment."""
    runs = index(a=(None, 0), b=("a", 5), c=("b", 3), d=("b", 5))
    assert lineage("c", runs.get) == [Segment("a", 0, 3), Segment("c", 3, NO_END)]
    assert lineage("d", runs.get) == [Segment("a", 0, 5), Segment("d", 5, NO_END)]


def test_a_missing_ancestor_is_named() -> None:
    """Not the run that was asked for, if that is there."""
    with pytest.raises(RunNotFoundError, match="nobody"):
        lineage("nobody", index().get)
    with pytest.raises(IntegrityFailureError, match=r"Run b .* run gone, which is missing"):
        lineage("b", index(b=("gone", 2)).get)


def test_a_circle_is_an_error_and_not_an_endless_loop() -> None:
    """A damaged index can say anything."""
    for runs in (index(a=("a", 3)), index(a=("b", 3), b=("a", 3)), index(a=("b", 1), b=("b", 2))):
        with pytest.raises(IntegrityFailureError, match="descends from itself"):
            lineage("a", runs.get)
