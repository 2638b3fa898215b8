"""How often an event is encoded, folded and read: counted on a whole run and on a recovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.event_cost import Cost, recovery_cost, run_cost
from turnledger.ledger import Ledger


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = "memory://" if request.param == "memory" else str(tmp_path / "runs.db")
    with Ledger.open(url) as opened:
        yield opened


def test_an_event_is_encoded_once_and_folded_at_most_twice(ledger: Ledger) -> None:
    """When it is added, and when the store has given its time, position and digest."""
    cost = run_cost(ledger)
    assert cost.written > 50
    assert cost.encodes == cost.written
    # RunStarted and RunClaimed are folded once, when the journal reads them.
    assert cost.folds == 2 * cost.written - 2
    assert cost.too_high == []


def test_a_recovery_reads_each_record_once(ledger: Ledger) -> None:
    """After its claim only what came since: the claim."""
    cost = recovery_cost(ledger)
    assert cost.found > 30
    assert cost.read == cost.found + 1
    assert cost.encodes == cost.written
    assert cost.too_high == []


def test_a_count_that_is_too_high_is_named() -> None:
    """The script can fail."""
    cost = Cost(found=10, tail=1, written=5, encodes=6, folds=31, read=12)
    assert cost.too_high == ["encodes", "folds", "read"]
