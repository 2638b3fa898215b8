"""Following a run: a fold that goes on with what was appended since."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.samples import note, notes
from tests.unit.projections.given import said
from tests.unit.projections.random_runs import declarations, small_world
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Event,
    InvalidInputError,
    Ledger,
    Record,
    RunNotFoundError,
    RunStarted,
    new_run_id,
)
from turnledger.projections import Conversation, Projection, fold, follow
from turnledger.projections.run_state.state import built_in

VIEWS = built_in(declarations())


class Notes(Projection[tuple[int, ...]]):
    """The numbers of a run's notes; the note -1 can't be folded."""

    name = "notes"
    reads = (CustomEvent,)

    def initial(self) -> tuple[int, ...]:
        return ()

    def apply(self, state: tuple[int, ...], record: Record) -> tuple[int, ...]:
        number = record.event.data["number"]  # type: ignore[union-attr]
        if number == -1:
            raise ValueError("unlucky")
        return (*state, number)


@settings(max_examples=25)
@given(
    events=st.lists(small_world, min_size=4, max_size=25),
    cuts=st.lists(st.integers(1, 4), max_size=12),
    fork=st.booleans(),
)
def test_a_follower_has_the_state_of_a_fold_from_the_beginning(
    events: list[Event], cuts: list[int], fork: bool
) -> None:
    """After any appends, for every view, of a run and of one that goes on from it."""
    rest = [event for event in events if not isinstance(event, RunStarted)]
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        ledger.append(run, [RunStarted(), *rest[:3]], NEW)
        run = ledger.fork(run, ledger.head(run)) if fork else run
        followers = [follow(ledger, run, view) for view in VIEWS]
        done = 3
        for cut in [0, *cuts]:
            if batch := rest[done : done + cut]:
                ledger.append(run, batch, ANY)
                done += cut
            for view, follower in zip(VIEWS, followers, strict=True):
                before = follower.state
                assert follower.update() is follower.state
                assert follower.version == ledger.head(run)
                whole = fold(ledger.read(run), view)
                assert view.digest(follower.state) == view.digest(whole)
                assert view.to_json(follower.state) == view.to_json(whole)
                assert batch or follower.state is before


def test_an_update_reads_only_what_was_appended(ledger: Ledger, monkeypatch: Any) -> None:
    """Whatever the run's length, and through its parents; nothing new is nothing read."""
    run = new_run_id()
    ledger.append(run, [RunStarted(), *notes(900)], NEW)
    child = ledger.fork(run, 901)
    ledger.append(child, notes(50), ANY)
    follower = follow(ledger, child, Notes())
    assert (len(follower.state), follower.version) == (950, 952)
    rows, read = ledger.store.rows, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        found = rows(*args, **kwargs)
        read.extend(found)
        return found

    monkeypatch.setattr(ledger.store, "rows", counted)
    assert follower.update() == follower.state
    assert read == []
    ledger.append(child, [said("user", "Hi", 1), note(7)], ANY)
    assert follower.update()[-1] == 7
    assert (len(read), follower.version) == (2, 954)


def test_a_fold_that_fails_leaves_the_follower_where_it_was(ledger: Ledger) -> None:
    """The next update reads the same events: none is left out."""
    run = new_run_id()
    ledger.append(run, notes(3), NEW)
    follower = follow(ledger, run, Notes())
    ledger.append(run, [note(12), note(-1)], ANY)
    for _ in range(2):
        with pytest.raises(ValueError, match="unlucky"):
            follower.update()
        assert (follower.state, follower.version) == ((0, 1, 2), 3)


def test_what_is_followed_is_a_run(ledger: Ledger) -> None:
    """One that is not there is an error, and so is another projection."""
    with pytest.raises(RunNotFoundError):
        follow(ledger, new_run_id(), Conversation())
    with pytest.raises(InvalidInputError, match="projection"):
        follow(ledger, new_run_id(), "usage")  # type: ignore[arg-type]
