"""A ledger of its own for each test of pydantic-ai, and agents on pydantic-ai's test models."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger in a file."""
    with Ledger.open(tmp_path / "runs.db") as opened:
        yield opened


@pytest.fixture(autouse=True)
def event_loop_closed() -> Iterator[None]:
    """`run_sync` makes an event loop for its thread and leaves it open."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:
            return
    loop.close()
    asyncio.set_event_loop(None)
