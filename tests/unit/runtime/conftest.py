"""Fixtures of the runtime's tests: an empty ledger, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.runtime.clocks import StandingClock
from turnledger.ledger import Ledger


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module that names its STORES on each of them, where they take a ledger."""
    stores = getattr(metafunc.module, "STORES", None)
    if stores is not None and "ledger" in metafunc.fixturenames:
        metafunc.parametrize("ledger", stores, indirect=True)


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """An empty ledger: in memory, unless the module names its STORES."""
    url = "memory://"
    if getattr(request, "param", "memory") == "sqlite":
        url = str(request.getfixturevalue("tmp_path") / "ledger.db")
    with Ledger.open(url) as opened:
        yield opened


@pytest.fixture
def clock() -> StandingClock:
    """A clock that stands still until the test moves it."""
    return StandingClock()
