"""Transactions of a store: groups that commit together, what is undone, unknown outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from tests.conformance.crowds import grouped
from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import draft, drafts, note, notes, numbers
from turnledger.ledger import (
    ANY,
    NEW,
    AsyncLedger,
    BlobNotFoundError,
    ConcurrentAppendError,
    Draft,
    EventIdConflictError,
    Ledger,
    ResourceSnapshotted,
    RunCompleted,
    RunStarted,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction


def test_no_reader_sees_what_is_not_committed(store: StoreUnderTest) -> None:
    """Records of an append that is undone are never seen, by no kind of read."""
    from turnledger.ledger.clock import SystemClock
    from turnledger.ledger.runs.append import ANY_VERSION, AppendRequest, Entry, append
    from turnledger.ledger.runs.codec import Codec

    ledger, other = store.open(), store.open()
    run = new_run_id()
    clock = SystemClock()
    seen: list[object] = []
    readers: list[Thread] = []

    def look() -> None:
        seen.extend(other.tail())
        seen.extend(other.runs())
        if other.head(run):
            seen.append("a head")

    def work(tx: object) -> None:
        entry = Entry(clock.new_id(), *Codec().encode(note()), note())
        append(tx, AppendRequest(str(run), [entry], ANY_VERSION, None, {}), clock)  # type: ignore[arg-type]
        readers.append(Thread(target=look))
        readers[-1].start()
        readers[-1].join(0.2)  # it may have to wait for this transaction to end
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.store.write(work)
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    assert seen == []


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


def test_mirrors_in_one_group_record_each_event_once(store: StoreUnderTest) -> None:
    """Group commit: what another append of the group has written is known to the next."""
    ledger = store.open()
    run, batch = new_run_id(), drafts(5)
    ledger.append(run, note(99), NEW)
    cuts = [batch[:3], batch[1:4], batch, batch[2:]]
    outcomes = grouped(
        ledger,
        *(lambda cut=cut: ledger.append(run, cut, ANY, known="skip") for cut in cuts),  # type: ignore[misc]
        lambda: ledger.append(run, Draft(note(7), batch[0].event_id), ANY, known="skip"),
    )
    assert [len(outcome.new) for outcome in outcomes[:4]] == [3, 1, 1, 0]
    assert isinstance(outcomes[4], EventIdConflictError)
    assert numbers(ledger.read(run)) == [99, 0, 1, 2, 3, 4]
    assert [r for made in outcomes[:4] for r in made.new] == list(ledger.read(run, after=1))
    assert ledger.verify(run).ok


@pytest.mark.parametrize("written", [True, False], ids=["committed", "lost"])
def test_a_mirror_whose_outcome_is_unknown_is_repeated(
    ledger: Ledger, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all drafts of the error, known and new, whether or not the commit went through."""
    run, batch = new_run_id(), drafts(4)
    ledger.append(run, batch[1:3], NEW)
    write = ledger.store.write

    def breaks(work: Callable[[Transaction], Any]) -> Any:
        monkeypatch.setattr(ledger.store, "write", write)
        if written:
            write(work)
        raise StoreUnavailableError("The connection broke.")

    monkeypatch.setattr(ledger.store, "write", breaks)
    with pytest.raises(StoreUnavailableError) as caught:
        ledger.append(run, batch, ANY, known="skip")
    again = ledger.append(run, caught.value.drafts, ANY, known="skip")
    assert len(again.new) == (0 if written else 2)
    assert numbers(ledger.read(run)) == [1, 2, 0, 3]


def test_the_async_ledger_mirrors_too(store: StoreUnderTest) -> None:
    """Tasks at once: it is the same method."""
    run, batch = new_run_id(), drafts(12)

    async def mirror() -> list[int]:
        ledger = AsyncLedger(store.open())
        cuts = [batch[start : start + 4] for start in range(0, 10, 2)]
        appends = (ledger.append(run, cut, ANY, known="skip") for cut in cuts)
        return [len(made.new) for made in await asyncio.gather(*appends)]

    assert sum(asyncio.run(mirror())) == 12
    assert store.open().head(run) == 12
