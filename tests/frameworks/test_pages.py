"""Pages about frameworks do what they say, as all pages do (tests/unit/test_docs.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_docs import FRAMEWORK_NAMES, ROOT, blocks, read

BRING = ROOT / "docs" / "tutorial" / "bring-your-agent.md"


@pytest.mark.full  # each starts a dozen processes; the matrix of kills has one for each framework
@pytest.mark.parametrize("name", FRAMEWORK_NAMES)
def test_what_a_page_shows_is_what_happens(name: str, tmp_path: Path) -> None:
    """Every python and console block runs, in order, and prints what the page says."""
    read(name, (ROOT / name).read_text(), tmp_path)


def test_an_agent_is_brought_in_fewer_than_ten_lines() -> None:
    """Of five frameworks, each difference on the page counts its added and removed lines."""
    changes = [block.text for block in blocks(BRING.read_text()) if block.kind == "diff"]
    counts = [sum(line[:1] in "+-" for line in text.splitlines()[2:] if line) for text in changes]
    assert len(counts) >= 5
    assert max(counts) < 10
