"""Retrying: event ids are unique for ever, so appending the same drafts again is safe."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import draft, drafts, message, note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    Draft,
    EventIdConflictError,
    RunClaimedError,
    RunStarted,
    StaleEpochError,
    new_run_id,
)

Expect = object


def unchanged(ledger: LedgerLike, act: Callable[[], object]) -> object:
    """Do it, and see that the ledger holds what it held."""
    before = list(ledger.tail())
    result = act()
    assert list(ledger.tail()) == before
    return result


@pytest.mark.parametrize("expected", [NEW, ANY, 0, 1, 3, 7])
def test_a_retry_gives_the_first_result_whatever_it_expects(
    ledger: LedgerLike, expected: int
) -> None:
    """Ids are checked before versions: the same drafts give the same records, flagged."""
    run, batch = new_run_id(), drafts(3)
    first = ledger.append(run, batch, NEW)
    again = unchanged(ledger, lambda: ledger.append(run, batch, expected))
    assert again.duplicate is True
    assert again.records == first.records
    assert (again.version, again.position, again.digest) == (3, first.position, first.digest)


def test_a_retry_is_known_after_others_appended(surface: Surface) -> None:
    """What came later does not matter, nor through which handle the retry comes."""
    one, other = surface.open(), surface.open()
    run, batch = new_run_id(), drafts(2)
    first = one.append(run, batch, NEW)
    other.append(run, notes(5), ANY)
    other.append(new_run_id(), notes(5), NEW)
    for handle in (one, other, surface.open()):
        for expected in (NEW, ANY, 2, 7):
            again = handle.append(run, batch, expected)
            assert again.duplicate
            assert again.records == first.records
            assert again.version == 2
    assert one.head(run) == 7


def test_a_single_draft_can_be_retried(ledger: LedgerLike) -> None:
    """A batch of one, in the middle of a run."""
    run, one = new_run_id(), draft()
    ledger.append(run, note(), NEW)
    ledger.append(run, one, 1)
    ledger.append(run, note(), 2)
    again = unchanged(ledger, lambda: ledger.append(run, one, ANY))
    assert again.duplicate
    assert again.version == 2


def test_a_retry_with_a_stale_epoch_gives_the_first_result(surface: Surface) -> None:
    """Ids are checked before epochs: what the old worker had written stays acknowledged."""
    old, new = surface.open(), surface.open()
    run, batch = new_run_id(), [draft(message())]
    old.append(run, RunStarted(), NEW)
    stale = old.claim(run)
    first = old.append(run, batch, ANY, epoch=stale.epoch)
    stale.release()
    new.claim(run)
    again = old.append(run, batch, first.version - 1, epoch=stale.epoch)
    assert again.duplicate
    assert again.records == first.records
    with pytest.raises(StaleEpochError):
        old.append(run, [draft(message())], ANY, epoch=stale.epoch)


def test_a_retry_to_a_run_that_another_worker_holds_gives_the_first_result(
    surface: Surface,
) -> None:
    """A claim that was taken since does not turn an acknowledged append into an error."""
    one, other = surface.open(), surface.open()
    run, batch = new_run_id(), [draft(message())]
    one.append(run, batch, NEW)
    other.claim(run)
    assert one.append(run, batch, NEW).duplicate
    with pytest.raises(RunClaimedError):
        one.append(run, [draft(message())], ANY)


def test_a_retried_run_start_is_no_second_start(ledger: LedgerLike) -> None:
    """RunStarted, retried with its id, answers rather than being refused as a second one."""
    run, batch = new_run_id(), [draft(RunStarted(tags={"a": "b"})), draft(note())]
    ledger.append(run, batch, NEW)
    assert unchanged(ledger, lambda: ledger.append(run, batch, NEW)).duplicate


def test_a_retried_fork_is_the_same_fork(ledger: LedgerLike) -> None:
    """The first event of a child, retried, answers with the first recording."""
    parent, child = new_run_id(), new_run_id()
    ledger.append(parent, notes(2), NEW)
    begin = draft(RunStarted(parent=parent, at=2, kind="fork"))
    first = ledger.append(child, begin, NEW)
    assert unchanged(ledger, lambda: ledger.append(child, begin, NEW)).records == first.records


def conflict(ledger: LedgerLike, act: Callable[[], object]) -> EventIdConflictError:
    with pytest.raises(EventIdConflictError) as caught:
        unchanged(ledger, act)
    return caught.value


@pytest.mark.parametrize("expected", [NEW, ANY, 2, 3])
def test_the_same_id_with_other_content_is_a_conflict(ledger: LedgerLike, expected: int) -> None:
    """The error names the id and where it stands, whatever version was expected."""
    run, batch = new_run_id(), drafts(2)
    ledger.append(run, batch, NEW)
    error = conflict(
        ledger, lambda: ledger.append(run, [batch[0], Draft(note(99), batch[1].event_id)], expected)
    )
    assert (error.event_id, error.run_id, error.version) == (str(batch[1].event_id), str(run), 2)
    assert "other content" in str(error)


def test_the_same_id_with_another_tag_is_a_conflict(ledger: LedgerLike) -> None:
    """Content is the tag and the bytes."""
    run, one = new_run_id(), draft(RunStarted())
    ledger.append(run, one, NEW)
    conflict(ledger, lambda: ledger.append(run, Draft(note(), one.event_id), ANY))


@pytest.mark.parametrize("expected", [NEW, ANY, 4])
def test_the_same_id_in_another_run_is_a_conflict(ledger: LedgerLike, expected: int) -> None:
    """Ids are unique in the whole ledger, not within a run."""
    run, other, one = new_run_id(), new_run_id(), draft()
    ledger.append(run, one, NEW)
    error = conflict(ledger, lambda: ledger.append(other, one, expected))
    assert error.run_id == str(run)
    assert ledger.head(other) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("expected", [NEW, ANY, 2])
def test_known_and_new_ids_in_one_batch_are_a_conflict(
    ledger: LedgerLike, expected: int, place: int
) -> None:
    """A batch is either all known or all new."""
    run, batch = new_run_id(), drafts(2)
    ledger.append(run, batch, NEW)
    mixed = list(batch)
    mixed.insert(place, draft(note(9)))
    conflict(ledger, lambda: ledger.append(run, mixed, expected))


@pytest.mark.parametrize("expected", [NEW, ANY, 3])
def test_a_reordered_batch_is_a_conflict(ledger: LedgerLike, expected: int) -> None:
    """Order is part of what was recorded."""
    run, batch = new_run_id(), drafts(3)
    ledger.append(run, batch, NEW)
    conflict(ledger, lambda: ledger.append(run, [batch[1], batch[0], batch[2]], expected))
    conflict(ledger, lambda: ledger.append(run, batch[::-1], expected))


def test_a_batch_with_a_hole_is_a_conflict(ledger: LedgerLike) -> None:
    """The first and the last event of a batch are not the batch."""
    run, batch = new_run_id(), drafts(3)
    ledger.append(run, batch, NEW)
    conflict(ledger, lambda: ledger.append(run, [batch[0], batch[2]], ANY))


def test_ids_from_two_runs_are_a_conflict(ledger: LedgerLike) -> None:
    """A batch of known ids that never stood together is nobody's retry."""
    first, second, one, two = new_run_id(), new_run_id(), draft(), draft()
    ledger.append(first, one, NEW)
    ledger.append(second, two, NEW)
    conflict(ledger, lambda: ledger.append(first, [one, two], ANY))


def test_a_conflict_of_ids_comes_before_epoch_and_version(surface: Surface) -> None:
    """The order of the checks is ids, epoch, version."""
    ledger, other = surface.open(), surface.open()
    run, one = new_run_id(), draft()
    ledger.append(run, one, NEW)
    claim = other.claim(run)
    changed = Draft(message(), one.event_id)
    conflict(ledger, lambda: ledger.append(run, changed, 99, epoch=claim.epoch + 5))
    with pytest.raises(StaleEpochError):
        ledger.append(run, draft(), 99, epoch=claim.epoch + 5)
    with pytest.raises(ConcurrentAppendError):
        ledger.append(run, draft(), 99, epoch=claim.epoch)


def test_ids_are_known_after_reopening(surface: Surface) -> None:
    """For ever means also through a handle that never saw the first append."""
    run, batch = new_run_id(), drafts(2)
    with surface.open() as ledger:
        ledger.append(run, batch, NEW)
    fresh = surface.open()
    assert fresh.append(run, batch, NEW).duplicate
    conflict(fresh, lambda: fresh.append(run, Draft(note(5), batch[0].event_id), ANY))


def test_an_id_that_was_refused_is_still_free(ledger: LedgerLike) -> None:
    """A refused append takes no ids with it."""
    run, batch = new_run_id(), drafts(2)
    ledger.append(run, note(), NEW)
    with pytest.raises(ConcurrentAppendError):
        ledger.append(run, batch, 9)
    again = ledger.append(run, batch, 1)
    assert not again.duplicate
    assert again.version == 3


def test_an_id_may_be_spelt_differently(ledger: LedgerLike) -> None:
    """Upper case or without dashes, it is the same id."""
    run, event_id = new_run_id(), uuid4()
    ledger.append(run, Draft(note(), event_id), NEW)
    for spelling in (str(event_id).upper(), event_id.hex, f"{{{event_id}}}"):
        assert ledger.append(run, Draft(note(), spelling), NEW).duplicate
