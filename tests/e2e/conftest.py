"""The command, in this process and as processes, on an empty ledger in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import InProcess, Processes
from tests.e2e.stories import record, story


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Where the test's ledger is; nothing is there yet."""
    return tmp_path / "runs.db"


@pytest.fixture
def cli(db: Path) -> InProcess:
    """The command, called in this process."""
    return InProcess(db)


@pytest.fixture
def processes(db: Path) -> Iterator[Processes]:
    """The command, each time as a process."""
    processes = Processes(db)
    yield processes
    processes.end()


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run of the story, on the test's ledger."""
    return record(cli, story())
