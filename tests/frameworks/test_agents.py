"""Agents of every framework are SIGKILLed, run again, replayed without a network, and changed.

`tests/frameworks/agents` has the table of frameworks, colours and streams, and what must be true
of each of its cells.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.agents.checks import check_cell
from tests.frameworks.agents.table import CELLS, FRAMEWORKS, Cell

# Of each framework one way, of the next one another. Anthropic's SDK is that of `tests/crash`.
NAMES = [name for name in FRAMEWORKS if name not in ("anthropic", "langchain-in-block")]
OF_EACH = {name: [cell for cell in CELLS if cell.framework == name] for name in NAMES}
ONE_EACH = [cells[place % len(cells)] for place, cells in enumerate(OF_EACH.values())]


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
