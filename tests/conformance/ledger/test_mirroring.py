"""Mirroring: with known="skip", a batch may hold events that are recorded already."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.crowds import together
from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import PICTURE, draft, drafts, message, note, notes, numbers
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    BlobNotFoundError,
    ConcurrentAppendError,
    CustomEvent,
    Draft,
    EventIdConflictError,
    InvalidInputError,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    StoreUnavailableError,
    blob_name,
    new_run_id,
)


def test_known_events_are_left_out_and_the_others_appended(ledger: LedgerLike) -> None:
    """In the order given; the result has all records, and says which are new."""
    run, batch = new_run_id(), drafts(6)
    first = ledger.append(run, [batch[1], batch[4]], NEW)
    made = ledger.append(run, batch, ANY, known="skip")
    assert numbers(ledger.read(run)) == [1, 4, 0, 2, 3, 5]
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
def test_a_batch_that_is_known_writes_nothing(ledger: LedgerLike, expected: int) -> None:
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


def test_without_skip_a_batch_that_is_known_in_part_is_refused(ledger: LedgerLike) -> None:
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
def test_another_event_under_a_known_id_is_a_conflict(ledger: LedgerLike, place: int) -> None:
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


def test_the_expected_version_is_that_of_the_new_events(ledger: LedgerLike) -> None:
    """The run's version before them; NEW means that none may be there."""
    run, batch = new_run_id(), drafts(4)
    ledger.append(run, batch[:2], NEW)
    for expected in (NEW, 1, 3, 4):
        with pytest.raises(ConcurrentAppendError) as caught:
            ledger.append(run, batch, expected, known="skip")
        assert caught.value.found == 2
    assert ledger.append(run, batch, 2, known="skip").version == 4


def test_a_started_run_is_mirrored_again_with_its_start(ledger: LedgerLike) -> None:
    """RunStarted is left out like any other; as a second start it is refused."""
    run, batch = new_run_id(), [draft(RunStarted()), *drafts(2)]
    assert len(ledger.append(run, batch[:2], ANY, known="skip").new) == 2
    assert [r.version for r in ledger.append(run, batch, ANY, known="skip").new] == [3]


def test_claims_are_checked_for_the_new_events(surface: Surface) -> None:
    """A known message is left out before it is asked who may write it."""
    owner, mirror = surface.open(), surface.open()
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


def test_blobs_of_left_out_events_are_there_already(surface: Surface, ledger: LedgerLike) -> None:
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
    assert surface.verify_all().ok


def test_mirrors_at_once_record_each_event_once(surface: Surface) -> None:
    """Through several handles, with windows that overlap: none is lost, none is there twice."""
    handles = [surface.open() for _ in range(3)]
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
    assert surface.verify_all().ok


def mirrored(ledger: LedgerLike, run: object, cut: list[Draft]) -> list[str]:
    """Append as a mirror does: when the outcome is unknown, append the same drafts again."""
    while True:
        try:
            made = ledger.append(run, cut, ANY, known="skip")  # type: ignore[arg-type]
        except StoreUnavailableError as error:
            cut = list(error.drafts)
            continue
        return [str(record.event_id) for record in made.new]


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.lists(st.integers(0, 9), min_size=1, unique=True), max_size=8))
def test_any_mirroring_records_each_event_once(ledger: LedgerLike, cuts: list[list[int]]) -> None:
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
        assert numbers(ledger.read(run)) == model
