"""Ledgers for tests that kill and race: each test runs on every store that processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.postgres import FAST, PostgresServer, new_database

STORES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A server that these tests share with no others.

    Whoever is stopped in the middle of a transaction delays all who follow a ledger there.
    """
    with PostgresServer(FAST) as server:
        yield server.url()


@pytest.fixture(params=STORES)
def new_ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the URL of another empty ledger each time."""
    if request.param == "postgresql":
        return partial(new_database, request.getfixturevalue("server"))
    made = 0

    def new() -> str:
        nonlocal made
        made += 1
        return str(tmp_path / f"ledger-{made}.db")

    return new


@pytest.fixture
def ledger_url(new_ledger_url: Callable[[], str]) -> str:
    return new_ledger_url()


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A ledger in a file, for what only files have."""
    return str(tmp_path / "ledger.db")


@pytest.fixture
def server_url(server: str) -> str:
    """A ledger in PostgreSQL, for what only a server does."""
    return new_database(server)
