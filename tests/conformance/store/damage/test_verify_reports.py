"""What verify and verify_all report."""

from __future__ import annotations

from uuid import UUID

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import PICTURE, note, notes, one_of_each, started
from turnledger.ledger import ANY, NEW, Ledger, RunStarted, new_run_id
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append


def populate(ledger: Ledger) -> list[UUID]:
    first, second = new_run_id(), new_run_id()
    ledger.append(first, [started(), *one_of_each()], NEW, blobs=[PICTURE])
    ledger.append(second, notes(2), NEW)
    child = ledger.fork(second, 2)
    ledger.append(child, notes(3), ANY)
    return [first, second, child]


def test_an_empty_ledger_verifies(ledger: Ledger) -> None:
    """Nothing is wrong with nothing."""
    report = ledger.verify_all()
    assert (report.ok, report.runs, report.records, report.blobs) == (True, 0, 0, 0)
    assert report.problems == ()


def test_a_sound_ledger_verifies_with_counts(ledger: Ledger) -> None:
    """Runs, records and blobs are counted."""
    populate(ledger)
    kinds = len(one_of_each())
    report = ledger.verify_all()
    assert (report.ok, report.runs, report.records, report.blobs) == (True, 3, kinds + 7, 1)


def test_progress_is_told(ledger: Ledger) -> None:
    """After each run, how many records were checked so far."""
    populate(ledger)
    told: list[int] = []
    report = ledger.verify_all(progress=told.append)
    assert told == sorted(told)
    assert told[-1] == report.records
    assert len(told) == 3


def test_a_problem_names_the_record_and_says_what_is_wrong(store: StoreUnderTest) -> None:
    """Run, version, position, event id and a sentence; as text it has them all."""
    ledger = store.open()
    _, second, child = populate(ledger)
    row = store.vandal.at(second, 2)
    store.vandal.change(row.position, "data", row.data.replace(b"1", b"8"))
    report = ledger.verify(child)
    (problem,) = report.problems
    assert not report.ok
    assert (problem.run_id, problem.version, problem.position) == (str(second), 2, row.position)
    assert problem.event_id == row.event_id.decode()
    assert "digest" in problem.what
    for part in (str(second), "version 2", str(row.position), problem.what):
        assert part in str(problem)
    assert ledger.verify_all().problems == (problem,)


def test_each_run_reports_its_first_bad_record(store: StoreUnderTest) -> None:
    """One problem a run, the earliest."""
    ledger = store.open()
    first, second, child = populate(ledger)
    for run, version in ((first, 9), (first, 4), (second, 1), (second, 2), (child, 5)):
        row = store.vandal.at(run, version)
        store.vandal.change(row.position, "recorded_at", row.recorded_at + 1)
    problems = {(p.run_id, p.version) for p in ledger.verify_all().problems}
    assert problems == {(str(first), 4), (str(second), 1), (str(child), 5)}


def test_a_run_that_only_the_index_knows_is_reported(store: StoreUnderTest) -> None:
    """A run whose records were all removed is missed."""
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, note(), NEW)
    store.vandal.delete(store.vandal.at(run, 1).position)
    for report in (ledger.verify(run), ledger.verify_all()):
        (problem,) = report.problems
        assert (problem.run_id, problem.version) == (str(run), 1)


def test_a_run_that_the_index_does_not_know_is_reported(store: StoreUnderTest) -> None:
    """Records without a row in the index are either forged or need a rebuild."""
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    store.vandal.delete_run(run)
    for report in (ledger.verify(run), ledger.verify_all()):
        (problem,) = report.problems
        assert (problem.run_id, problem.version) == (str(run), 2)
        assert "index" in problem.what
    ledger.rebuild_index()
    assert ledger.verify_all().ok


def test_an_event_that_does_not_fit_its_type_is_reported(store: StoreUnderTest) -> None:
    """A record whose chain is right, but whose data no program can read, is no sound record."""
    ledger = store.open()
    run, clock = new_run_id(), SystemClock()
    ledger.append(run, RunStarted(), NEW)
    entry = Entry(clock.new_id(), "custom", b'{"kind":"a.b","wrong":1}', note())
    ledger.store.write(
        lambda tx: append(tx, AppendRequest(str(run), [entry], ANY_VERSION, None, {}), clock)
    )
    (problem,) = ledger.verify(run).problems
    assert (problem.version, problem.event_id) == (2, entry.event_id)
    assert "not a valid event" in problem.what
