"""Hostile text: the work that a search for secrets does grows with it and no faster, counted."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.texts.hostile import UNITS, hostile
from turnledger.ledger import Redactor
from turnledger.ledger.redaction.search import WORTH

REDACTOR = Redactor()
SMALL, LARGE = 4_000, 32_000
GROWTH = 1.1
# Of work that does not depend on the length.
FIXED = 500


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    """All that is compiled once, which is not a matter of the text."""
    REDACTOR.text("a" * 2 * WORTH)


def _calls(text: str) -> int:
    """Calls of functions, built-in ones included, while a text is redacted."""
    count = 0

    def called(_: FrameType, kind: str, __: object) -> None:
        nonlocal count
        count += kind.endswith("call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        REDACTOR.text(text)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", UNITS)
def test_calls_grow_with_hostile_text_and_no_faster(name: str) -> None:
    """Text from outside must not block its recording; `python -m benchmarks redaction` times it."""
    REDACTOR.text(hostile(UNITS[name], 1_000))  # builds and compiles what is needed once
    few, many = _calls(hostile(UNITS[name], SMALL)), _calls(hostile(UNITS[name], LARGE))
    assert many <= (few + FIXED) * (LARGE / SMALL) ** GROWTH


def test_there_are_sixty_five_hostile_texts() -> None:
    """Each another way to be slow."""
    assert len(UNITS) >= 65
    assert len({*UNITS.values()}) == len(UNITS)


CLOCKS = {"time", "timeit"}


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.py")), ids=lambda p: p.stem)
def test_no_test_of_redaction_reads_a_clock(path: Path) -> None:
    """A bound on seconds fails on a busy machine, or is too wide to find anything."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert not imported & CLOCKS
