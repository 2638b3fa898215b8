"""Reading a run: ranges, backwards, in pages, and one record at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, product

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import draft, message, note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    InvalidInputError,
    Record,
    RecordNotFoundError,
    RunNotFoundError,
    new_run_id,
)


def test_read_gives_all_records_in_order(ledger: LedgerLike) -> None:
    """Without a range, a run is read from its first event to its last."""
    run = new_run_id()
    ledger.append(run, notes(12), NEW)
    ledger.append(new_run_id(), notes(3), NEW)
    assert [record.event for record in ledger.read(run)] == notes(12)


def test_read_takes_every_range_and_page_size_both_ways(ledger: LedgerLike) -> None:
    """after < version <= until, the same whatever the page size, and backwards reversed."""
    run, count = new_run_id(), 7
    ledger.append(run, notes(3), NEW)
    ledger.append(run, notes(4), ANY)
    for after, until, page in product(range(-1, 9), [None, *range(-1, 9)], [1, 2, 3, 7, 500]):
        end = count if until is None else until
        wanted = [v for v in range(1, count + 1) if after < v <= end]
        found = [r.version for r in ledger.read(run, after, until, page_size=page)]
        back = [r.version for r in ledger.read(run, after, until, backwards=True, page_size=page)]
        assert found == wanted, (after, until, page)
        assert back == wanted[::-1], (after, until, page)


def test_reading_is_lazy(ledger: LedgerLike) -> None:
    """A reader that stops early does not read the rest, and sees appends that came meanwhile."""
    run = new_run_id()
    ledger.append(run, notes(4), NEW)
    reader = ledger.read(run, page_size=2)
    assert [record.version for record in islice(reader, 2)] == [1, 2]
    ledger.append(run, notes(2), ANY)
    assert [record.version for record in reader] == [3, 4, 5, 6]


def test_a_record_has_all_its_parts_in_the_types_that_users_work_with(ledger: LedgerLike) -> None:
    """Ids are UUIDs, times are aware, a digest is hex, the event is the event."""
    run, mine = new_run_id(), draft(message("hi"))
    before = datetime.now(UTC)
    ledger.append(run, mine, NEW)
    record = ledger.record(run, 1)
    assert isinstance(record, Record)
    assert (record.run_id, record.version, record.event_id) == (run, 1, mine.event_id)
    assert record.position > 0
    assert record.tag == "message.appended"
    assert record.event == mine.event
    assert abs((record.recorded_at - before).total_seconds()) < 60
    assert record.recorded_at.utcoffset() is not None
    assert len(bytes.fromhex(record.digest)) == 32
    assert record.data.startswith('{"message":{"role":"user","content":"hi"')


def test_records_are_values(ledger: LedgerLike) -> None:
    """Two readings of a record are equal and hash alike; two records are not."""
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    first, second = ledger.read(run)
    assert first == ledger.record(run, 1)
    assert len({first, second, *ledger.read(run)}) == 2
    assert first != "something else"


def test_record_gives_one(ledger: LedgerLike) -> None:
    """A record is found by its version; another version is an error that names the range."""
    run = new_run_id()
    ledger.append(run, notes(3), NEW)
    assert [ledger.record(run, version).event for version in (1, 2, 3)] == notes(3)
    for version in (0, -1, 4):
        with pytest.raises(RecordNotFoundError, match="from 1 to 3") as caught:
            ledger.record(run, version)
        assert (caught.value.run_id, caught.value.version, caught.value.head) == (
            str(run),
            version,
            3,
        )


def test_a_run_that_is_not_there_is_an_error_and_its_head_is_zero(ledger: LedgerLike) -> None:
    """read, run, record, claim and verify say so; head says 0."""
    run = new_run_id()
    assert ledger.head(run) == 0
    for call in (lambda run: next(ledger.read(run)), ledger.run, ledger.claim, ledger.verify):
        with pytest.raises(RunNotFoundError, match=str(run)) as caught:
            call(run)
        assert caught.value.run_id == str(run)
    with pytest.raises(RunNotFoundError):
        ledger.record(run, 1)


def test_head_is_what_any_handle_appended_last(surface: Surface) -> None:
    """A head is never remembered from before."""
    one, other = surface.open(), surface.open()
    run = new_run_id()
    for turn in range(6):
        (one, other)[turn % 2].append(run, notes(turn + 1), ANY)
        assert one.head(run) == other.head(run) == (turn + 1) * (turn + 2) // 2


@pytest.mark.parametrize("bad", [0, -1])
def test_a_page_holds_at_least_one(ledger: LedgerLike, bad: int) -> None:
    """A page size below 1 is refused by everything that reads in pages."""
    run = new_run_id()
    ledger.append(run, note(), NEW)
    for call in (
        lambda: ledger.read(run, page_size=bad),
        lambda: ledger.runs(page_size=bad),
        lambda: ledger.tail(page_size=bad),
    ):
        with pytest.raises(InvalidInputError, match="page_size"):
            list(call())
