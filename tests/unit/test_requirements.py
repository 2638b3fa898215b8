"""docs/requirements.md names every requirement, and tests that there are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "requirements.md"
ROW = re.compile(r"^\| ((?:S\d-|X)\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
ROWS = {line: (what, tests) for line, what, tests in ROW.findall(PAGE.read_text())}
REQUIRED = [
    *(f"S0-{number}" for number in range(1, 25)),
    *(f"S1-{number}" for number in range(1, 17)),
    *(f"S2-{number}" for number in range(1, 25)),
    *(f"S4-{number}" for number in range(1, 23)),
]


@cache
def functions(path: Path) -> frozenset[str]:
    """The names of a test file's functions."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_every_requirement_has_one_row() -> None:
    """Each line of S0, S1, S2 and S4-1 to S4-22 is in the table, once."""
    lines = [line for line, _, _ in ROW.findall(PAGE.read_text())]
    assert [line for line in lines if not line.startswith("X")] == REQUIRED
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("line", ROWS)
def test_the_tests_of_a_requirement_exist(line: str) -> None:
    """Each test that is named is a function in that file."""
    _, cell = ROWS[line]
    named = re.findall(r"`([^`]+)`", cell)
    assert named, line
    for name in named:
        path, _, function = name.partition("::")
        assert function in functions(ROOT / path), name
