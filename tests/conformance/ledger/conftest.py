"""The fixtures of the ledger's public surface, over all surfaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.surfaces import Surface, surface_names, surface_under_test


@pytest.fixture(params=surface_names())
def surface(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Surface]:
    """An empty ledger behind every surface in turn; clock and limits are given to `open`."""
    with surface_under_test(request.param, tmp_path) as surface:
        yield surface


@pytest.fixture(params=surface_names(processes=True))
def shared_surface(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Surface]:
    """The same for every surface that several processes can use at once."""
    with surface_under_test(request.param, tmp_path) as surface:
        yield surface


@pytest.fixture
def ledger(surface: Surface) -> LedgerLike:
    """A handle on the ledger under test."""
    return surface.open()
