"""Processes that fork with a ledger open: nobody loses what was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.driver import drive


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("parent", ["closes", "goes on"])
def test_a_child_opens_what_its_parent_has_open(tmp_path: Path, parent: str) -> None:
    """SQLite knows nothing of forks: parent and child are two who have the ledger open."""
    told = drive("forking", seconds=60, url=str(tmp_path / "runs.db"), parent=parent)

    assert told["found"] == told["acknowledged"] > 20
    assert told["verified"]


def test_a_child_of_one_who_was_reading_is_refused(tmp_path: Path) -> None:
    """It can't be made safe then, so it is said, and the parent is not harmed."""
    told = drive("forking", seconds=60, url=str(tmp_path / "runs.db"), parent="is reading")

    assert "spawn" in told["refusal"]
    assert told["found"] == told["acknowledged"] == 21
    assert told["verified"]
