"""Many threads on one handle: nothing lost, nothing doubled, nobody hurt by another's error."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any
from uuid import UUID

from tests.conformance.crowds import together
from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import draft, note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    Draft,
    LedgerClosedError,
    StoreUnavailableError,
    new_run_id,
)

THREADS, TURNS = 32, 50


def test_many_threads_append_to_one_run(surface: Surface) -> None:
    """With ANY each append finds its place: versions without gap, each thread's in its order."""
    ledger = surface.open()
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
    assert surface.verify_all().ok


def test_many_threads_append_to_runs_of_their_own(surface: Surface) -> None:
    """With exact versions there is never a conflict."""
    ledger = surface.open()
    runs = [new_run_id() for _ in range(THREADS)]

    def work(thread: int) -> int:
        for turn in range(TURNS):
            ledger.append(runs[thread], note(turn), turn)
        return ledger.head(runs[thread])

    assert together(THREADS, work) == [TURNS] * THREADS
    for run in runs:
        assert [record.event for record in ledger.read(run)] == notes(TURNS)
    report = surface.verify_all()
    assert (report.ok, report.runs, report.records) == (True, THREADS, THREADS * TURNS)


def test_threads_race_for_a_version_and_one_wins_each(surface: Surface) -> None:
    """Two handles, four threads each: one append a version, the others know that they lost."""
    handles = [surface.open(), surface.open()]
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


def test_threads_retry_the_same_drafts_and_they_are_recorded_once(surface: Surface) -> None:
    """Whoever is first, all get the same records; one of them is told that they were new."""
    handles = [surface.open(), surface.open()]
    for _ in range(10):
        run, batch = new_run_id(), [draft(note(n)) for n in range(3)]
        outcomes = together(8, lambda n, run=run, batch=batch: retried(handles[n % 2], run, batch))
        assert [outcome.duplicate for outcome in outcomes].count(False) <= 1
        assert len({outcome.records for outcome in outcomes}) == 1
        assert handles[0].head(run) == 3


def retried(ledger: LedgerLike, run: UUID, batch: list[Draft]) -> Any:
    """Append as the docs say: when the outcome is unknown, append the same drafts again."""
    while True:
        try:
            return ledger.append(run, batch, NEW)
        except StoreUnavailableError as error:
            batch = list(error.drafts)


def test_readers_see_whole_commits_while_others_write(surface: Surface) -> None:
    """A batch is there or it is not: never half of one, in read, tail and head."""
    ledger, other = surface.open(), surface.open()
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


def test_closing_while_threads_append_loses_nothing(surface: Surface) -> None:
    """Each append either was acknowledged and is there, or got LedgerClosedError."""
    ledger, other = surface.open(), surface.open()
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
    assert surface.verify_all().ok
