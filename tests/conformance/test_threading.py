"""Many threads on one handle: nothing lost, nothing doubled, nobody hurt by another's error."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.crowds import grouped, together
from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import draft, note, notes
from turnledger.ledger import (
    ANY,
    NEW,
    BlobNotFoundError,
    ConcurrentAppendError,
    Draft,
    EventIdConflictError,
    Ledger,
    LedgerClosedError,
    ResourceSnapshotted,
    RunCompleted,
    RunStarted,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)

THREADS, TURNS = 32, 50


def test_many_threads_append_to_one_run(store: StoreUnderTest) -> None:
    """With ANY each append finds its place: versions without gap, each thread's in its order."""
    ledger = store.open()
    run = new_run_id()

    def work(thread: int) -> list[int]:
        return [ledger.append(run, note(t, thread=thread), ANY).version for t in range(TURNS)]

    versions = together(THREADS, work)
    assert sorted(v for own in versions for v in own) == list(range(1, THREADS * TURNS + 1))
    records = list(ledger.read(run))
    by_thread: dict[int, list[int]] = {}
    for record in records:
        data = record.event.data  # type: ignore[union-attr]
        by_thread.setdefault(data["thread"], []).append(data["number"])
    assert by_thread == {thread: list(range(TURNS)) for thread in range(THREADS)}
    assert ledger.verify_all().ok


def test_many_threads_append_to_runs_of_their_own(store: StoreUnderTest) -> None:
    """With exact versions there is never a conflict."""
    ledger = store.open()
    runs = [new_run_id() for _ in range(THREADS)]

    def work(thread: int) -> int:
        for turn in range(TURNS):
            ledger.append(runs[thread], note(turn), turn)
        return ledger.head(runs[thread])

    assert together(THREADS, work) == [TURNS] * THREADS
    for run in runs:
        assert [record.event for record in ledger.read(run)] == notes(TURNS)
    report = ledger.verify_all()
    assert (report.ok, report.runs, report.records) == (True, THREADS, THREADS * TURNS)


def test_threads_race_for_a_version_and_one_wins_each(store: StoreUnderTest) -> None:
    """Two handles, four threads each: one append a version, the others know that they lost."""
    handles = [store.open(), store.open()]
    run = new_run_id()
    for version in range(15):
        outcomes = together(
            8, lambda n, version=version: handles[n % 2].append(run, note(n), version)
        )
        losers = [o for o in outcomes if isinstance(o, ConcurrentAppendError)]
        assert len(losers) == 7
        assert {(error.expected, error.found) for error in losers} == {(version, version + 1)}
    assert handles[0].head(run) == 15
    assert handles[1].verify(run).ok


def test_threads_retry_the_same_drafts_and_they_are_recorded_once(store: StoreUnderTest) -> None:
    """Whoever is first, all get the same records; one of them is told that they were new."""
    handles = [store.open(), store.open()]
    for _ in range(10):
        run, batch = new_run_id(), [draft(note(n)) for n in range(3)]
        outcomes = together(8, lambda n, run=run, batch=batch: retried(handles[n % 2], run, batch))
        assert [outcome.duplicate for outcome in outcomes].count(False) <= 1
        assert len({outcome.records for outcome in outcomes}) == 1
        assert handles[0].head(run) == 3


def retried(ledger: Ledger, run: UUID, batch: list[Draft]) -> Any:
    """Append as the docs say: when the outcome is unknown, append the same drafts again."""
    while True:
        try:
            return ledger.append(run, batch, NEW)
        except StoreUnavailableError as error:
            batch = list(error.drafts)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_failure_in_a_group_is_its_own(store: StoreUnderTest, place: int) -> None:
    """A conflict, a known id, a lost race and a missing blob hurt nobody else in the group."""
    ledger = store.open()
    existing, known = new_run_id(), draft(note(7))
    ledger.append(existing, known, NEW)
    bad: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: ledger.append(existing, note(), 9), ConcurrentAppendError),
        (
            lambda: ledger.append(existing, Draft(note(8), known.event_id), ANY),
            EventIdConflictError,
        ),
        (
            lambda: ledger.append(
                new_run_id(), ResourceSnapshotted(resource="r", files={"a": blob_name(b"?")}), NEW
            ),
            BlobNotFoundError,
        ),
        (lambda: ledger.append(new_run_id(), known, NEW), EventIdConflictError),
    ]
    runs = [new_run_id() for _ in range(4)]
    good = [
        lambda run=run: ledger.append(run, [RunStarted(tags={"g": "1"}), *notes(2)], NEW)
        for run in runs
    ]
    act, error = bad[place]
    acts = [*good[:2], act, *good[2:], act, lambda: ledger.append(existing, known, NEW)]
    outcomes = grouped(ledger, *acts)
    assert isinstance(outcomes[2], error)
    assert isinstance(outcomes[5], error)
    for at, run in zip((0, 1, 3, 4), runs, strict=True):
        assert outcomes[at].version == 3
        assert tuple(ledger.read(run)) == outcomes[at].records
    assert outcomes[6].duplicate
    assert ledger.head(existing) == 1
    assert len(list(ledger.runs(tags={"g": "1"}))) == 4
    assert ledger.verify_all().ok


def test_appends_of_one_group_to_one_run_follow_each_other(store: StoreUnderTest) -> None:
    """Within a group, each append sees what the one before it did, failed ones excepted."""
    ledger = store.open()
    run, mine = new_run_id(), draft(note(5))
    outcomes = grouped(
        ledger,
        lambda: ledger.append(run, RunStarted(), NEW),
        lambda: ledger.append(run, note(1), 1),
        lambda: ledger.append(run, note(2), 1),
        lambda: ledger.append(run, mine, 2),
        lambda: ledger.append(run, mine, 2),
        lambda: ledger.append(run, RunStarted(), ANY),
        lambda: ledger.append(run, RunCompleted(), ANY),
        lambda: ledger.append(run, Draft(note(6), mine.event_id), ANY),
    )
    assert [getattr(o, "version", type(o).__name__) for o in outcomes] == [
        1,
        2,
        "ConcurrentAppendError",
        3,
        3,
        "InvalidEventError",
        4,
        outcomes[7].version,
    ]
    assert isinstance(outcomes[7], EventIdConflictError)
    assert (outcomes[3].duplicate, outcomes[4].duplicate) == (False, True)
    assert ledger.run(run).status == "completed"
    assert [record.version for record in ledger.read(run)] == [1, 2, 3, 4]
    ledger.append(run, note(), 4)
    assert ledger.verify_all().ok


def test_readers_see_whole_commits_while_others_write(store: StoreUnderTest) -> None:
    """A batch is there or it is not: never half of one, in read, tail and head."""
    ledger, other = store.open(), store.open()
    run, done = new_run_id(), Event()
    ledger.append(run, notes(5), NEW)

    def write() -> None:
        for _ in range(60):
            ledger.append(run, notes(5), ANY)
        done.set()

    writer = Thread(target=write)
    writer.start()
    while not done.is_set():
        for handle in (ledger, other):
            assert len(list(handle.read(run, page_size=5000))) % 5 == 0
            assert len(list(handle.tail(page_size=5000))) % 5 == 0
            assert handle.head(run) % 5 == 0
    writer.join()


def test_closing_while_threads_append_loses_nothing(store: StoreUnderTest) -> None:
    """Each append either was acknowledged and is there, or got LedgerClosedError."""
    ledger, other = store.open(), store.open()
    runs = [new_run_id() for _ in range(8)]
    running = Event()

    def work(thread: int) -> int:
        if thread == 8:
            assert running.wait(30)
            ledger.close()
            return 0
        for turn in range(10_000):
            try:
                ledger.append(runs[thread], note(turn), turn)
            except LedgerClosedError:
                return turn
            if turn == 3:
                running.set()
        raise AssertionError("the ledger was never closed")

    acknowledged = together(9, work)[:8]
    assert [other.head(run) for run in runs] == acknowledged
    assert other.verify_all().ok
