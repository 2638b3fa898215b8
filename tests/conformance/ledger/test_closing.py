"""Closing and reopening."""

from __future__ import annotations

import pytest

from tests.conformance.samples import note, notes
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    LedgerClosedError,
    RunStarted,
    new_run_id,
)


def test_a_closed_ledger_says_so(surface: Surface) -> None:
    """Every method raises LedgerClosedError, and none hangs or writes."""
    ledger = surface.open()
    run = new_run_id()
    ledger.append(run, notes(2), NEW)
    claim = ledger.claim(run)
    ledger.close()
    calls = (
        lambda: ledger.append(run, note(), ANY),
        lambda: list(ledger.read(run)),
        lambda: ledger.record(run, 1),
        lambda: ledger.head(run),
        lambda: ledger.run(run),
        lambda: list(ledger.runs()),
        lambda: list(ledger.tail()),
        lambda: next(ledger.tail(follow=True)),
        lambda: ledger.blob("sha256:x"),
        lambda: ledger.fork(run, 2),
        lambda: ledger.continuation(run),
        lambda: ledger.claim(run),
        lambda: ledger.begin(new_run_id(), RunStarted()),
        lambda: ledger.worker_of(run),
        lambda: ledger.heartbeat(claim),
        lambda: ledger.release(claim),
        claim.heartbeat,
        claim.release,
        lambda: ledger.verify(run),
    )
    for call in calls:
        with pytest.raises(LedgerClosedError):
            call()
    assert surface.open().head(run) == 3


def test_closing_twice_is_harmless(surface: Surface) -> None:
    """And so is closing a ledger that a `with` has closed."""
    with surface.open() as ledger:
        ledger.append(new_run_id(), note(), NEW)
    ledger.close()
    ledger.close()


def test_closing_one_handle_leaves_the_others(surface: Surface) -> None:
    """Handles are independent."""
    one, other = surface.open(), surface.open()
    run = new_run_id()
    one.append(run, note(), NEW)
    one.close()
    assert other.append(run, note(), 1).version == 2


def test_what_was_written_is_there_after_reopening(surface: Surface) -> None:
    """Records, index, blobs and digests."""
    run = new_run_id()
    with surface.open() as ledger:
        written = ledger.append(run, notes(3), NEW).records
        info = ledger.run(run)
    with surface.open() as ledger:
        assert tuple(ledger.read(run)) == written
        assert ledger.run(run) == info
        assert ledger.append(run, note(), 3).version == 4
        assert surface.verify_all().ok
