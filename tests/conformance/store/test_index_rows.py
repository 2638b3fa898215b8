"""The run index in a store: the events alone rebuild it.

Also here: that the database itself refuses to change an event or a blob.
"""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import PICTURE, note, notes, one_of_each, started
from turnledger.ledger import ANY, NEW, Ledger, RunCompleted, RunStarted, RunWaiting, new_run_id
from turnledger.ledger.stores import sql


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


@pytest.mark.parametrize("few", [1, 2, 100])
def test_a_listing_is_the_same_however_many_runs_fit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Few are found by their tag or the end of their id, many by going through the newest."""
    monkeypatch.setattr(sql, "FEW", few)
    ends = ("aaaa-bbbb-000000000001", "aaaa-bbbb-000000000002", "cccc-dddd-000000000002")
    one, two, three = (UUID(f"019b0000-0000-7000-{end[:4]}-{end[-12:]}") for end in ends)
    for run, team in ((one, "red"), (two, "red"), (three, "blue")):
        ledger.append(run, RunStarted(tags={"team": team}), NEW)

    def listed(**given: Any) -> list[UUID]:
        return [run.run_id for run in ledger.runs(**given)]

    assert listed(tags={"team": "red"}) == [two, one]
    assert listed(tags={"team": "red"}, limit=1) == [two]
    assert listed(tags={"team": "green"}) == []
    assert listed(tags={"team": None}) == [three, two, one]
    assert listed(id_part="00000002") == [three, two]
    assert listed(id_part="00000002", tags={"team": "blue"}) == [three]
    assert listed(id_part="019b0000") == [three, two, one]
    assert listed(id_part="2") == [three, two]
    assert listed(id_part="99999999") == []
