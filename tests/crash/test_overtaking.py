"""Two workers and one run: one of them has it, and the other does nothing to the world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.driver import drive
from tests.soaking import Search


def check_races(told: dict[str, Any], rounds: int) -> None:
    """One claims and finishes, the other is refused, and nothing was paid twice."""
    assert len(told["races"]) == rounds
    for number, race in enumerate(told["races"]):
        assert sorted(race) == ["Paid 6.", "refused"], f"race {number}: {race}"
    for end in told["ends"]:
        assert (end["status"], end["worker"]) == ("completed", None)
        assert end["effects"] == ["a1", "a2", "a3"]


def test_of_two_who_recover_one_run_one_is_refused(ledger_url: str, tmp_path: Path) -> None:
    """25 runs whose worker was killed: RunClaimedError for one of two, and no effect twice."""
    told = drive(
        "overtaking", seconds=120, url=ledger_url, folder=str(tmp_path), scene="race", rounds=25
    )
    check_races(told, 25)


@pytest.mark.soak
def test_the_same_five_hundred_times(
    new_ledger_url: Callable[[], str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """500 races for 500 runs on each store."""
    store = request.node.callspec.params["new_ledger_url"]
    search = Search(f"races-{store}", goal={"races": 500})
    for number in search.rounds(share=0.01):
        folder = tmp_path / str(number)
        folder.mkdir()
        with search.blaming(f"round {number}"):
            told = drive(
                "overtaking",
                seconds=120,
                url=new_ledger_url(),
                folder=str(folder),
                scene="race",
                rounds=25,
            )
            check_races(told, 25)
        search.count(races=25)
    assert search.problems == []


def test_a_worker_that_was_overtaken_appends_nothing(ledger_url: str, tmp_path: Path) -> None:
    """Stopped within a tool, its run claimed and finished by another: it says StaleEpochError."""
    told = drive(
        "overtaking", seconds=120, url=ledger_url, folder=str(tmp_path), scene="stop", rounds=2
    )
    for round_, end in zip(told["rounds"], told["ends"], strict=True):
        assert round_["error"] == "StaleEpochError"
        assert round_["refused"] > 0, "the holder's lease was void before its time"
        assert round_["text"] == "Paid 6."
        assert (end["status"], end["head"]) == ("completed", round_["head"])
        assert end["effects"] == ["a1", "a2", "a3"]
