"""Moments that no record can have: never written, found by verify, and typed errors to readers."""

from __future__ import annotations

import io
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest, Vandal
from tests.conformance.samples import note
from turnledger.ledger import (
    NEW,
    IntegrityFailureError,
    Ledger,
    export_runs,
    new_run_id,
)
from turnledger.ledger.clock import LAST_MOMENT
from turnledger.ledger.events.chain import GENESIS, link


def recorded(store: StoreUnderTest, moment: int) -> tuple[Ledger, UUID]:
    """A run whose one record was moved to another moment, with a digest and an index that fit."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, note(), NEW)
    row = store.vandal.at(run, 1)
    digest = link(GENESIS, row.run_id, 1, row.event_id, row.tag, moment, row.data)
    forge(store.vandal, row.position, run, moment, digest)
    return store.open(), run


def forge(vandal: Vandal, position: int, run: UUID, moment: int, digest: bytes) -> None:
    assert vandal.change(position, "recorded_at", moment)
    assert vandal.change(position, "digest", digest)
    for column, value in (("recorded_at", moment), ("started_at", moment), ("digest", digest)):
        assert vandal.change_run(run, column, value)


@pytest.mark.parametrize("moment", [2**62, LAST_MOMENT + 1, 0, -5])
def test_verify_finds_a_moment_that_no_record_can_have(store: StoreUnderTest, moment: int) -> None:
    """Though digests and the index fit."""
    ledger, run = recorded(store, moment)
    for report in (ledger.verify(run), ledger.verify_all()):
        (problem,) = report.problems
        assert (problem.run_id, problem.version) == (str(run), 1)
        assert f"recorded_at {moment} is outside the range of times" in problem.what


def test_readers_get_a_typed_error_for_a_moment_that_no_calendar_has(store: StoreUnderTest) -> None:
    """Whoever asks for the time; all the rest of the record can be read."""
    ledger, run = recorded(store, 2**62)
    (record,) = ledger.read(run)
    assert record.event == note()
    readers = (
        lambda: record.recorded_at,
        lambda: ledger.run(run),
        lambda: list(ledger.runs()),
        lambda: export_runs(ledger, io.BytesIO(), [run]),
    )
    for read in readers:
        with pytest.raises(IntegrityFailureError, match="Invalid time"):
            read()
