"""What the tests of replay share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnledger.ledger import Ledger

pytest.register_assert_rewrite("tests.replay.farm", "tests.replay.shepherd")

from tests.replay.farm import Farm  # noqa: E402 - what it asserts is explained too


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with Ledger.open("memory://") as opened:
        yield opened


@pytest.fixture
def farm(ledger: Ledger) -> Farm:
    """Agents that record in a ledger in memory."""
    return Farm(ledger)
