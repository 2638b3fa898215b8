"""The run index: what each event changes in it, and that the events alone rebuild it.

Also here: that the database itself refuses to change an event or a blob.
"""

from __future__ import annotations

import sqlite3
from uuid import UUID

import psycopg
import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import PICTURE, message, note, notes, one_of_each, started
from tests.matrices import cells
from turnledger.ledger import (
    ANY,
    NEW,
    ApprovalDecided,
    EvaluationStarted,
    Event,
    Ledger,
    RunAbandoned,
    RunCompleted,
    RunFailed,
    RunParked,
    RunResumed,
    RunStarted,
    RunWaiting,
    ToolCallDecided,
    new_run_id,
)

DECIDED = ToolCallDecided(call_id="c", decision="retry")
APPROVED = ApprovalDecided(call_id="c", decision="approved")
STATUSES: list[tuple[list[Event], str]] = [
    ([RunStarted()], "running"),
    ([note()], "running"),
    ([RunStarted(), RunWaiting(reason="?")], "waiting"),
    ([RunStarted(), RunWaiting(reason="?"), note(), message()], "waiting"),
    ([RunStarted(), RunWaiting(reason="?"), DECIDED], "running"),
    ([RunStarted(), RunWaiting(reason="?"), APPROVED], "running"),
    ([RunStarted(), RunCompleted(), APPROVED], "completed"),
    ([RunStarted(), RunWaiting(reason="?"), RunResumed(attempt=1, from_version=1)], "running"),
    ([RunStarted(), RunCompleted()], "completed"),
    ([RunStarted(), RunCompleted(), DECIDED], "completed"),
    ([RunStarted(), RunFailed(error_type="E", error_message="m")], "failed"),
    (
        [
            RunStarted(),
            RunFailed(error_type="E", error_message="m"),
            RunResumed(attempt=1, from_version=1),
        ],
        "running",
    ),
    ([RunStarted(), RunParked(reason="r")], "parked"),
    ([RunStarted(), RunParked(reason="r"), DECIDED], "parked"),
    ([RunStarted(), RunAbandoned()], "abandoned"),
]


@pytest.mark.parametrize(("case", "at_once"), cells(STATUSES, [True, False]))
def test_events_set_the_status_of_their_run(
    ledger: Ledger, case: tuple[list[Event], str], at_once: bool
) -> None:
    """In one batch or one by one, the status is that of the last event that has one."""
    events, status = case
    run = new_run_id()
    for batch in [events] if at_once else [[event] for event in events]:
        ledger.append(run, batch, ANY)
    assert ledger.run(run).status == status
    assert [info.run_id for info in ledger.runs(status=status)] == [run]  # type: ignore[arg-type]


def test_a_claim_sets_the_epoch_and_not_the_status(ledger: Ledger) -> None:
    """Each claim of a run is one more."""
    run = new_run_id()
    ledger.append(run, [RunStarted(), RunWaiting(reason="?")], NEW)
    for epoch in (1, 2, 3):
        with ledger.claim(run) as claim:
            assert claim.epoch == ledger.run(run).epoch == epoch
    assert ledger.run(run).status == "waiting"


def test_the_prompt_is_the_one_evaluated_last(ledger: Ledger) -> None:
    """Namespace and key, with a slash between."""
    run = new_run_id()
    assert ledger.append(run, note(), NEW)
    assert ledger.run(run).prompt == ""
    for key in ("a", "b"):
        ledger.append(
            run,
            EvaluationStarted(evaluation_id="e", prompt_ns="x/y", prompt_key=key, prompt_digest=""),
            ANY,
        )
        assert ledger.run(run).prompt == f"x/y/{key}"


def test_tags_come_back_as_they_were_given(ledger: Ledger) -> None:
    """Empty ones, long ones, quotes and emoji included."""
    run = new_run_id()
    tags = {"": "", "k" * 512: "v" * 512, "🦜": 'a"b\\c', "z": "1", "a": "2", "é": "\n\t"}
    ledger.append(run, RunStarted(tags=tags), NEW)
    assert ledger.run(run).tags == tags
    for key, value in tags.items():
        assert [info.run_id for info in ledger.runs(tags={key: value})] == [run]


def test_a_refused_append_leaves_the_index_alone(ledger: Ledger) -> None:
    """The index is written in the append's own transaction, or not at all."""
    run, other = new_run_id(), new_run_id()
    ledger.append(run, RunStarted(tags={"a": "b"}), NEW)
    before = list(ledger.runs())
    with pytest.raises(Exception, match="expected"):
        ledger.append(run, RunCompleted(), 7)
    with pytest.raises(Exception, match="blob"):
        ledger.append(other, one_of_each(), NEW)
    assert list(ledger.runs()) == before


def populate(ledger: Ledger) -> list[UUID]:
    """Runs of all kinds and statuses."""
    first, second, third = new_run_id(), new_run_id(), new_run_id()
    ledger.append(first, [started(), *one_of_each()], NEW, blobs=[PICTURE])
    ledger.append(second, RunStarted(tags={"team": "blue", "x": ""}), NEW)
    with ledger.claim(second) as claim:
        ledger.append(second, RunWaiting(reason="?"), ANY, epoch=claim.epoch)
    with ledger.claim(second):
        pass
    ledger.append(third, notes(3), NEW)
    fork = ledger.fork(second, 3, tags={"team": "fork"})
    ledger.append(fork, RunCompleted(), ANY)
    of_fork = ledger.fork(fork, 5)
    continuation = ledger.continuation(third, tags={"c": "d"})
    empty = ledger.continuation(of_fork)
    return [first, second, third, fork, of_fork, continuation, empty]


def listings(ledger: Ledger) -> list[object]:
    return [
        list(ledger.runs()),
        *(list(ledger.runs(status=status)) for status in ("running", "waiting", "completed")),  # type: ignore[arg-type]
        *(list(ledger.runs(tags=tags)) for tags in ({"team": None}, {"team": "blue"}, {"c": "d"})),
        list(ledger.runs(prompt="ns/key")),
    ]


def test_the_index_is_rebuilt_as_it_was(ledger: Ledger) -> None:
    """Every row, tag and listing is a fold of the events and nothing else."""
    runs = populate(ledger)
    before = listings(ledger)
    assert ledger.rebuild_index() == len(runs)
    assert listings(ledger) == before
    assert ledger.verify_all().ok


def test_a_damaged_index_is_rebuilt(store: StoreUnderTest) -> None:
    """Rows that were changed or deleted come back, and appends go on from there."""
    ledger = store.open()
    runs = populate(ledger)
    before = listings(ledger)
    vandal = store.vandal
    vandal.change_run(runs[0], "status", b"parked")
    vandal.change_run(runs[1], "epoch", 0)
    vandal.change_run(runs[2], "version", 1)
    vandal.change_run(runs[3], "parent_version", 1)
    vandal.delete_run(runs[4])
    vandal.change_run(runs[5], "tags", b"{}")
    assert listings(ledger) != before
    assert ledger.rebuild_index() == len(runs)
    for handle in (ledger, store.open()):
        assert listings(handle) == before
        assert handle.verify_all().ok
    for run in runs:
        version = ledger.head(run)
        assert ledger.append(run, note(), version).version == version + 1
    assert ledger.verify_all().ok


def test_an_empty_ledger_has_an_empty_index(ledger: Ledger) -> None:
    """Nothing to fold is nothing to list."""
    assert ledger.rebuild_index() == 0
    assert list(ledger.runs()) == []


def test_the_database_itself_refuses_to_change_what_was_recorded(store: StoreUnderTest) -> None:
    """UPDATE and DELETE of events and blobs fail without anyone's help, and change nothing."""
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, [note(), *one_of_each()], NEW, blobs=[PICTURE])
    vandal = store.vandal
    refusals = (sqlite3.IntegrityError, psycopg.Error, TypeError, AttributeError)
    attempts = vandal.honest_attempts()
    assert len(attempts) >= 4
    for attempt in attempts:
        with pytest.raises(refusals):
            attempt()
    assert ledger.verify_all().ok
    assert [record.event for record in ledger.read(run)] == [note(), *one_of_each()]
