"""Agents are SIGKILLed in the middle of a command; what is recovered ends the same elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.driver import drive
from tests.crash.test_matrix import check_files_end_alike, matrix
from tests.matrices import further
from tests.sandboxes import RUNNERS, working_runner

pytestmark = pytest.mark.process

WRITTEN = ("folder/file", "names.txt", "out.txt")


def test_commands_of_a_killed_agent_have_the_same_outcome_in_another_folder(
    file_url: str, tmp_path: Path
) -> None:
    """In the middle of one, in one that fails, and at a commit and a release."""
    runs = matrix(file_url, tmp_path, "double", first=10, stride=8)
    check_files_end_alike(runs, *WRITTEN)
    deaths = [death for run in runs for death in run["deaths"]]
    assert deaths[:2] == ["in the middle of the command", "in a command that fails"]


@pytest.mark.full
@pytest.mark.parametrize("recoveries", [0, 3])
def test_the_same_at_every_moment_of_a_command(
    recoveries: int, file_url: str, tmp_path: Path
) -> None:
    """Also if those who recover are killed too."""
    runs = matrix(file_url, tmp_path, "double", recoveries=recoveries)
    check_files_end_alike(runs, *WRITTEN)
    assert {
        "before the command",
        "in the middle of the command",
        "after the command",
        "in a command that fails",
        "in the last command",
    } <= {death for run in runs for death in run["deaths"]}


@pytest.mark.full
def test_the_same_in_a_real_sandbox(file_url: str, tmp_path: Path) -> None:
    """Killed while the command itself is running."""
    working_runner("bubblewrap")
    runs = matrix(file_url, tmp_path, "bubblewrap")
    check_files_end_alike(runs, "copy.txt", "out.txt")
    deaths = [death for run in runs for death in run["deaths"]]
    assert deaths.count("in the middle of the command") == 3


@pytest.mark.parametrize("name", further(*RUNNERS))
def test_a_command_ends_with_the_process_that_asked_for_it(name: str, tmp_path: Path) -> None:
    """All of its processes, also those in sessions of their own that ignore signals."""
    working_runner(name)
    (tmp_path / "workspace").mkdir()
    told = drive("sandboxed", seconds=60, runner=name, folder=str(tmp_path / "workspace"))
    assert told["running"] >= 3
    assert told["left"] == 0
