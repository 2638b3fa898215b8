"""A ledger in memory, for what reads a run from one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnledger.ledger import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open("memory://") as opened:
        yield opened
