"""Given checkpoints reached, saved and cleared, when they are folded, then the one that counts."""

from __future__ import annotations

from datetime import timedelta

from tests.unit.projections.given import START, continues, folded, forks, ident
from turnledger.ledger import CheckpointCleared, CheckpointReached, CheckpointStored, RunStarted
from turnledger.projections import CheckpointEntry

REACHED = CheckpointReached(
    phase="post_tool",
    tool_calls_completed=1,
    state_digest="s",
    outcome_digest="o",
    created_at=START,
)
STORED = CheckpointStored(
    checkpoint='{"run_id":"x"}',
    phase="initialized",
    tool_calls_completed=0,
    created_at=START - timedelta(days=2),
)


def test_before_the_first_checkpoint_there_is_none() -> None:
    """Nor any entries."""
    state = folded(RunStarted()).checkpoints
    assert (state.latest, len(state.entries)) == (None, 0)


def test_a_checkpoint_that_was_reached_is_the_latest() -> None:
    """Its id is its event's."""
    state = folded(RunStarted(), REACHED).checkpoints
    assert state.latest == CheckpointEntry(
        str(ident(10**6 + 2)), 2, "post_tool", 1, START, "s", "o"
    )
    assert state.entries.to_tuple() == (state.latest,)
    later = folded(RunStarted(), REACHED, REACHED).checkpoints
    assert later.latest == later.entries.to_tuple()[1]


def test_one_that_a_user_saved_is_kept_as_it_was_given() -> None:
    """The latest is the latest in the ledger, however old it says it is (X9)."""
    latest = folded(RunStarted(), REACHED, STORED).checkpoints.latest
    assert latest is not None
    assert (latest.stored, latest.created_at) == ('{"run_id":"x"}', START - timedelta(days=2))


def test_clearing_leaves_none_and_keeps_the_history() -> None:
    """Delete is a tombstone: load gives None (X5, X6)."""
    state = folded(RunStarted(), REACHED, STORED, CheckpointCleared(reason="done")).checkpoints
    assert state.latest is None
    assert [entry.version for entry in state.entries] == [2, 3]


def test_a_checkpoint_after_clearing_counts_again() -> None:
    """Only what was there before was cleared; clearing twice is harmless."""
    cleared = CheckpointCleared()
    state = folded(RunStarted(), REACHED, cleared, cleared, REACHED).checkpoints
    assert state.latest is not None
    assert state.latest.version == 5


def test_a_run_that_begins_has_no_checkpoints_of_its_parents() -> None:
    """Neither in a fork nor in a continuation."""
    for begins in (forks(2), continues(2)):
        state = folded(RunStarted(), REACHED, begins).checkpoints
        assert (state.latest, len(state.entries)) == (None, 0)


def test_the_json_shows_the_latest_and_all() -> None:
    """None is null."""
    shown = folded(RunStarted(), REACHED, CheckpointCleared()).to_json()["checkpoints"]
    assert shown["latest"] is None
    assert [entry["phase"] for entry in shown["entries"]] == ["post_tool"]
