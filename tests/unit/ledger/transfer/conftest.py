"""Ledgers in memory, where the kind of store does not matter: one to export, one to import."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from turnledger.ledger import Ledger


@pytest.fixture
def source() -> Iterator[Ledger]:
    """A ledger to make files from."""
    with Ledger.open(f"memory://{uuid4()}") as ledger:
        yield ledger


@pytest.fixture
def target() -> Iterator[Ledger]:
    """A ledger that takes a file or not."""
    with Ledger.open(f"memory://{uuid4()}") as ledger:
        yield ledger
