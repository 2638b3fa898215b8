"""Verifying a run: what the report counts."""

from __future__ import annotations

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import PICTURE, notes, one_of_each, started
from turnledger.ledger import ANY, NEW, RunNotFoundError, new_run_id


def test_a_run_that_nobody_knows_is_an_error(ledger: LedgerLike) -> None:
    """There is nothing to verify."""
    with pytest.raises(RunNotFoundError):
        ledger.verify(new_run_id())


def test_a_report_counts_a_run_and_its_ancestors(ledger: LedgerLike) -> None:
    """Runs, records and blobs; of a parent only what is shared."""
    first, second = new_run_id(), new_run_id()
    ledger.append(first, [started(), *one_of_each()], NEW, blobs=[PICTURE])
    ledger.append(second, notes(2), NEW)
    child = ledger.fork(second, 2)
    ledger.append(child, notes(3), ANY)
    one = ledger.verify(first)
    assert (one.ok, one.runs, one.records, one.blobs) == (True, 1, len(one_of_each()) + 1, 1)
    lineage = ledger.verify(child)
    assert (lineage.ok, lineage.runs, lineage.records) == (True, 2, 6)
    assert ledger.verify(second).runs == 1
    assert lineage.problems == ()
