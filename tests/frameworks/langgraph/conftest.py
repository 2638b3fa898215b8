"""What the tests of the LangGraph integration share: a ledger in a file, and a saver on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turnledger.langgraph import TurnledgerSaver
from turnledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger in a file."""
    with Ledger.open(tmp_path / "runs.db") as ledger:
        yield ledger


@pytest.fixture
def saver(ledger: Ledger) -> TurnledgerSaver:
    return TurnledgerSaver(ledger)
