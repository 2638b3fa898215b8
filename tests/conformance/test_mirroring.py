"""Mirroring: with known="skip", a batch may hold events that are recorded already."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.crowds import grouped, together
from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import PICTURE, draft, message, note, notes
from turnledger.ledger import (
    ANY,
    NEW,
    AsyncLedger,
    BlobNotFoundError,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    EventIdConflictError,
    InvalidInputError,
    Ledger,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)
from turnledger.ledger.runs.transaction import Transaction


def drafts(count: int) -> list[Draft]:
    return [draft(note(number)) for number in range(count)]


def numbers(ledger: Ledger, run: object) -> list[int]:
    return [record.event.data["number"] for record in ledger.read(run)]  # type: ignore[arg-type,union-attr]


def test_known_events_are_left_out_and_the_others_appended(ledger: Ledger) -> None:
    """In the order given; the result has all records, and says which are new."""
    run, batch = new_run_id(), drafts(6)
    first = ledger.append(run, [batch[1], batch[4]], NEW)
    made = ledger.append(run, batch, ANY, known="skip")
    assert numbers(ledger, run) == [1, 4, 0, 2, 3, 5]
    assert [record.version for record in made.records] == [3, 1, 4, 5, 2, 6]
    assert [record.event for record in made.records] == notes(6)
    assert [record.version for record in made.new] == [3, 4, 5, 6]
    assert (made.records[1], made.records[4]) == first.records
    assert {*made.records} == {*ledger.read(run)}
    assert (made.duplicate, made.version) == (False, 6)
    assert (made.position, made.digest) == (made.new[-1].position, made.new[-1].digest)
    assert len({record.recorded_at for record in made.new}) == 1
    assert ledger.verify(run).ok


@pytest.mark.parametrize("expected", [NEW, ANY, 1, 3, 99])
def test_a_batch_that_is_known_writes_nothing(ledger: Ledger, expected: int) -> None:
    """Whatever is expected, in any order and from several batches."""
    run, batch = new_run_id(), drafts(3)
    assert ledger.append(run, batch[:2], NEW, known="skip").new == tuple(ledger.read(run))
    ledger.append(run, batch[2:], 2)
    before = list(ledger.tail())
    again = ledger.append(run, [batch[2], batch[0]], expected, known="skip")
    assert list(ledger.tail()) == before
    assert (again.duplicate, again.new, again.version) == (True, (), 3)
    assert again.records == (before[2], before[0])
    assert (again.position, again.digest) == (before[2].position, before[2].digest)


def test_without_skip_a_batch_that_is_known_in_part_is_refused(ledger: Ledger) -> None:
    """The default is as it was: a retry is of a whole batch."""
    run, batch = new_run_id(), drafts(3)
    ledger.append(run, batch[:2], NEW)
    for known in ({}, {"known": "refuse"}):
        with pytest.raises(EventIdConflictError, match="new events too"):
            ledger.append(run, batch, ANY, **known)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="skip"):
        ledger.append(run, batch, ANY, known="ignore")  # type: ignore[arg-type]
    assert ledger.head(run) == 2


@pytest.mark.parametrize("place", [0, 1, 3])
def test_another_event_under_a_known_id_is_a_conflict(ledger: Ledger, place: int) -> None:
    """Other content, another tag, an event of another run or of the parent: nothing is written."""
    run, batch = new_run_id(), drafts(2)
    ledger.append(run, batch, NEW)
    child = ledger.fork(run, 2)
    known = batch[0].event_id
    for where, event in (
        (run, note(9)),
        (run, message()),
        (new_run_id(), note(0)),
        (child, note(0)),
    ):
        given: list[Draft] = [batch[1], *drafts(2)] if where == run else drafts(3)
        given.insert(place, Draft(event, known))
        before = list(ledger.tail())
        with pytest.raises(EventIdConflictError) as caught:
            ledger.append(where, given, ANY, known="skip")
        assert (caught.value.event_id, caught.value.run_id) == (str(known), str(run))
        assert list(ledger.tail()) == before


def test_the_expected_version_is_that_of_the_new_events(ledger: Ledger) -> None:
    """The run's version before them; NEW means that none may be there."""
    run, batch = new_run_id(), drafts(4)
    ledger.append(run, batch[:2], NEW)
    for expected in (NEW, 1, 3, 4):
        with pytest.raises(ConcurrentAppendError) as caught:
            ledger.append(run, batch, expected, known="skip")
        assert caught.value.found == 2
    assert ledger.append(run, batch, 2, known="skip").version == 4


def test_a_started_run_is_mirrored_again_with_its_start(ledger: Ledger) -> None:
    """RunStarted is left out like any other; as a second start it is refused."""
    run, batch = new_run_id(), [draft(RunStarted()), *drafts(2)]
    assert len(ledger.append(run, batch[:2], ANY, known="skip").new) == 2
    assert [r.version for r in ledger.append(run, batch, ANY, known="skip").new] == [3]


def test_claims_are_checked_for_the_new_events(store: StoreUnderTest) -> None:
    """A known message is left out before it is asked who may write it."""
    owner, mirror = store.open(), store.open()
    run, said = new_run_id(), draft(message())
    owner.append(run, said, NEW)
    claim = owner.claim(run)
    assert len(mirror.append(run, [said, draft()], ANY, known="skip").new) == 1
    with pytest.raises(RunClaimedError):
        mirror.append(run, [said, draft(message())], ANY, known="skip")
    with pytest.raises(StaleEpochError):
        owner.append(run, [said, draft()], ANY, epoch=claim.epoch + 1, known="skip")
    assert owner.append(run, said, ANY, epoch=claim.epoch + 1, known="skip").duplicate
    assert owner.head(run) == 3


def test_blobs_of_left_out_events_are_there_already(ledger: Ledger) -> None:
    """Only new events need theirs."""
    run = new_run_id()
    old, new = (
        draft(CustomEvent(kind="a.b", data=n, blobs=(blob_name(content),)))
        for n, content in enumerate((PICTURE, b"other"))
    )
    ledger.append(run, old, NEW, blobs=[PICTURE])
    with pytest.raises(BlobNotFoundError):
        ledger.append(run, [old, new], ANY, known="skip")
    assert len(ledger.append(run, [old, new], ANY, known="skip", blobs=[b"other"]).new) == 1
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
    assert numbers(ledger, run) == [99, 0, 1, 2, 3, 4]
    assert [r for made in outcomes[:4] for r in made.new] == list(ledger.read(run, after=1))
    assert ledger.verify(run).ok


def test_mirrors_at_once_record_each_event_once(store: StoreUnderTest) -> None:
    """Through several handles, with windows that overlap: none is lost, none is there twice."""
    handles = [store.open() for _ in range(3)]
    for seed in range(4):
        run, batch = new_run_id(), drafts(24)

        def mirror(number: int, run=run, batch=batch, seed=seed) -> list[str]:  # type: ignore[no-untyped-def]
            dice, new = random.Random(seed * 100 + number), []
            for start in sorted(dice.sample(range(0, 24, 2), 8)) + list(range(0, 24, 4)):
                cut = batch[start : start + 5]
                new += mirrored(handles[number % 3], run, cut)
            return new

        found = together(6, mirror)
        ids = [str(record.event_id) for record in handles[0].read(run)]
        assert sorted(ids) == sorted(str(one.event_id) for one in batch)
        assert sorted(one for own in found for one in own) == sorted(ids)
    assert handles[1].verify_all().ok


def mirrored(ledger: Ledger, run: object, cut: list[Draft]) -> list[str]:
    """Append as a mirror does: when the outcome is unknown, append the same drafts again."""
    while True:
        try:
            made = ledger.append(run, cut, ANY, known="skip")  # type: ignore[arg-type]
        except StoreUnavailableError as error:
            cut = list(error.drafts)
            continue
        return [str(record.event_id) for record in made.new]


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
    assert numbers(ledger, run) == [1, 2, 0, 3]


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


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.lists(st.integers(0, 9), min_size=1, unique=True), max_size=8))
def test_any_mirroring_records_each_event_once(ledger: Ledger, cuts: list[list[int]]) -> None:
    """In the order in which they first came, whatever comes again in which batch."""
    run, batch = uuid4(), drafts(10)
    model: list[int] = []
    for cut in cuts:
        made = ledger.append(run, [batch[n] for n in cut], len(model), known="skip")
        new = [n for n in cut if n not in model]
        model += new
        assert [r.event.data["number"] for r in made.new] == new  # type: ignore[union-attr]
        assert [r.event.data["number"] for r in made.records] == cut  # type: ignore[union-attr]
        assert made.duplicate == (not new)
        assert numbers(ledger, run) == model
