"""The run that the tests of "what if" ask about."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.unit.runtime.loops import Goal, Planner
from turnledger.ledger import Ledger, new_run_id


@pytest.fixture
def run(ledger: Ledger) -> UUID:
    """A whole run of three steps."""
    run_id = new_run_id()
    Planner(ledger=ledger).execute(Goal(), run_id=run_id)
    return run_id
