"""A book for each test of durable steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.runtime.steps.book import Book


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    yield made
    made.ledger.close()
