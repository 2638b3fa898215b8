"""The fixtures that hand out a store: to damage it, or to reach below the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import STORES, StoreUnderTest, store_under_test
from turnledger.ledger import Ledger


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUnderTest]:
    """Every store in turn, empty."""
    with store_under_test(request.param, tmp_path) as store:
        yield store


@pytest.fixture(params=[name for name, kind in STORES.items() if kind.reaches_processes])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUnderTest]:
    """Every store that several processes can use at once, empty."""
    with store_under_test(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def ledger(store: StoreUnderTest) -> Ledger:
    """A handle on the store under test."""
    return store.open()
