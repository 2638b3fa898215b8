"""Agents of every framework are SIGKILLed, run again, replayed without a network, and changed.

`tests/frameworks/agents` has the table of frameworks, colours and streams, and what must be true
of each of its cells.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.agents.checks import check_cell
from tests.frameworks.agents.table import CELLS, FRAMEWORKS, Cell

# Of each framework another way, and the first one that it has.
ONE_EACH = [
    next(cell for cell in CELLS[place::-1] if cell.framework == name)
    for place, name in enumerate(FRAMEWORKS)
]


@pytest.mark.process
@pytest.mark.parametrize("cell", ONE_EACH, ids=str)
def test_killed_after_a_payment(cell: Cell, tmp_path: Path) -> None:
    """The payment is not made again; what it comes to, and replays of it, are as if it lived."""
    assert check_cell(cell, tmp_path, at="in pay, after its effect") == 1


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_killed_anywhere(cell: Cell, tmp_path: Path) -> None:
    """Before and after each commit, in each tool and each stream; nothing recorded is repeated."""
    assert check_cell(cell, tmp_path) > 30
