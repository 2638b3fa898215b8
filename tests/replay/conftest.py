"""What the tests of replay share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.matrices import further
from turnledger.ledger import Ledger

pytest.register_assert_rewrite("tests.replay.farm", "tests.replay.shepherd")

from tests.replay.farm import Farm  # noqa: E402 - what it asserts is explained too


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with Ledger.open("memory://") as opened:
        yield opened


@pytest.fixture(params=further(False, True), ids=["some versions", "every version"])
def farm(request: pytest.FixtureRequest, ledger: Ledger) -> Farm:
    """Agents that record in a ledger in memory; runs go again up to some or all versions."""
    return Farm(ledger, every=request.param)
