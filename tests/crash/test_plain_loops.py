"""Plain loops with wrapped clients are SIGKILLed wherever they can die, replayed and changed.

The table of `tests/frameworks/agents` has these cells too, for the newer SDKs that the frameworks
bring.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.agents.checks import check_cell
from tests.frameworks.agents.table import PLAIN, WAYS, Cell
from tests.matrices import cells


@pytest.mark.process
@pytest.mark.parametrize(("framework", "way"), cells(PLAIN, tuple(WAYS)))
def test_a_loop_that_was_killed_anywhere_ends_as_if_it_had_not_been(
    framework: str, way: str, tmp_path: Path
) -> None:
    """Before and after each commit, in each tool and each stream; nothing recorded is repeated."""
    assert check_cell(Cell(framework, way), tmp_path) > 38
