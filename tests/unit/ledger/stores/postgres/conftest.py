"""Fixtures of the tests on PostgreSQL: a database, its administrator, ledgers that get closed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from tests.postgres import new_database
from tests.unit.ledger.stores.postgres.ledgers import Opened, Sql
from turnledger.ledger import Ledger


@pytest.fixture
def url() -> str:
    """A database without a ledger."""
    return new_database()


@pytest.fixture
def sql(url: str) -> Iterator[Sql]:
    """Another user of the same database, its administrator."""
    with psycopg.connect(url, autocommit=True) as db:
        yield db


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens ledgers that are closed after the test."""
    with ExitStack() as stack:
        yield lambda url, **options: stack.enter_context(Ledger.open(url, **options))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool
