"""Searches with a goal: they go on where they stopped, and forget nothing that they found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests import soaking
from tests.soaking import Search, report

GOAL = {"kills": 30}

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(soaking, "SOAK_FOLDER", tmp_path / "soak")
    monkeypatch.setattr(soaking, "SOAK_MINUTES", 60.0)
    return tmp_path / "soak"


def go(search: Search, *, rounds: int = 100) -> list[int]:
    """Ten kills a round; the numbers of the rounds that were begun, the last one given up."""
    begun = []
    for number in search.rounds(share=0.5):
        begun.append(number)
        if len(begun) > rounds:
            break
        search.count(kills=10, forks=1)
    return begun


def test_a_search_ends_at_its_goal() -> None:
    """Three rounds of ten kills are thirty kills, and the report says so."""
    search = Search("kills", GOAL)

    assert go(search) == [1, 2, 3]
    assert search.figures == {"kills": 30, "forks": 3}
    first, *figures = report()
    assert first == "kills: 0 problems; goal reached"
    assert figures[-2:] == ["           30 kills of 30", "            3 forks"]


def test_an_interrupted_search_goes_on_with_the_round_that_was_cut_off() -> None:
    """What an unfinished round had counted does not count, and its number is used again."""
    interrupted = Search("kills", GOAL)
    assert go(interrupted, rounds=1) == [1, 2]
    interrupted.count(kills=5)

    resumed = Search("kills", GOAL)
    assert resumed.figures == {"kills": 10, "forks": 1}
    assert go(resumed) == [2, 3]
    assert resumed.figures == {"kills": 30, "forks": 3}


def test_a_killed_process_leaves_what_its_rounds_counted(folder: Path) -> None:
    """A SIGKILL in the third round: the two before it are in the file."""
    program = """
import os, signal
from tests.soaking import Search
search = Search("kills", {"kills": 1000})
for number in search.rounds(share=1.0):
    search.count(kills=10)
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {"SOAK_FOLDER": str(folder), "PATH": "/usr/bin:/bin"}
    killed = subprocess.run([sys.executable, "-c", program], cwd=soaking.ROOT, env=environment)

    assert killed.returncode == -9
    assert Search("kills", {"kills": 1000}).figures == {"kills": 20}


def test_after_its_goal_a_search_begins_anew_with_other_numbers() -> None:
    """Figures from nothing, and no seed that was used before."""
    go(Search("kills", GOAL))

    again = Search("kills", GOAL)
    assert again.figures == {}
    assert go(again) == [4, 5, 6]
    assert "  3 rounds up to number 6, 0.0 minutes" in list(report())


def test_a_higher_goal_keeps_what_was_counted() -> None:
    """The thirty kills count towards forty."""
    go(Search("kills", GOAL))

    assert go(Search("kills", {"kills": 40})) == [4]


def test_a_problem_ends_the_search_and_is_kept() -> None:
    """It stands in the file at once; the next search begins at nothing and still tells of it."""
    search = Search("kills", GOAL)
    rounds: Iterator[int] = search.rounds(share=0.5)
    search.count(kills=next(rounds))
    search.blame("round 1: lost")
    assert "  PROBLEM round 1: lost" in list(report())
    assert list(rounds) == []
    assert search.problems == ["round 1: lost"]

    again = Search("kills", GOAL)
    assert again.problems == []
    assert again.figures == {}
    assert 1 not in go(again)
    assert "  PROBLEM BEFORE round 1: lost" in list(report())


def test_a_round_that_fails_is_written_down() -> None:
    """The test sees the error as it was, and the file tells of it."""
    search = Search("kills", GOAL)
    for number in search.rounds(share=0.5):
        with pytest.raises(ValueError, match="torn"), search.blaming(f"round {number}"):
            raise ValueError("torn")

    assert search.problems == ["round 1: ValueError: torn"]


def test_the_time_that_a_search_has_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is up a search ends after the round that it is in, and goes on next time."""
    monkeypatch.setattr(soaking, "SOAK_MINUTES", 0.0)

    assert go(Search("kills", GOAL)) == [1]
    assert go(Search("kills", GOAL)) == [2]


def test_all_searches_together_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their shares are: when SOAK_MINUTES are over, each has one more round."""
    monkeypatch.setattr(soaking, "BEGAN", soaking.BEGAN - 3600.0)

    assert go(Search("kills", GOAL)) == [1]
    assert list(soaking.rounds(share=1.0)) == [1]


def test_the_file_names_the_code_that_was_searched(folder: Path) -> None:
    """Once for each commit, however many rounds."""
    go(Search("kills", GOAL))

    kept = msgspec.json.decode((folder / "kills.json").read_bytes(), type=soaking.Kept)
    assert len(kept.commits) == 1
