"""Pages about frameworks do what they say, as all pages do (tests/unit/test_docs.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_docs import FRAMEWORK_NAMES, ROOT, read


@pytest.mark.parametrize("name", FRAMEWORK_NAMES)
def test_what_a_page_shows_is_what_happens(name: str, tmp_path: Path) -> None:
    """Every python and console block runs, in order, and prints what the page says."""
    read(name, (ROOT / name).read_text(), tmp_path)
