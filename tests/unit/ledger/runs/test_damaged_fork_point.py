"""A fork of a run whose index and events disagree: an error of the project, also with python -O."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.samples import notes
from turnledger.ledger import NEW, IntegrityFailureError, Ledger, new_run_id
from turnledger.ledger.runs.transaction import Transaction


def test_a_fork_from_an_event_that_is_gone_tells_the_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The index lists a version that has no row: IntegrityFailureError, and nothing is written."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        ledger.append(run, notes(3), NEW)
        kinds: list[type] = []
        ledger.store.write(lambda tx: kinds.append(type(tx)))

        def gone(tx: Transaction, *place: Any) -> None:
            return None

        monkeypatch.setattr(kinds[0], "row_at", gone)
        with pytest.raises(IntegrityFailureError, match="has no event 2"):
            ledger.fork(run, 2)
        assert sum(1 for _ in ledger.runs()) == 1
