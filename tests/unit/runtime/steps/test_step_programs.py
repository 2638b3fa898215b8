"""Random programs of steps through crashes, outages, decisions and cancelled tasks.

`tests.unit.runtime.steps.programs` has the programs, and what must hold of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soaking import Search
from tests.unit.runtime.steps.programs import play
from turnledger.ledger import Ledger

SEEDS = 30
ON_DISK = 6


def _problems(url: str, seed: int) -> list[str]:
    with Ledger.open(url) as ledger:
        return [f"{seed}: {problem}" for problem in play(ledger, seed)]


@pytest.mark.parametrize("tens", range(SEEDS // 10))
def test_nothing_recorded_is_done_again_and_nothing_unknown_without_a_decision(tens: int) -> None:
    """Whatever the program, and wherever its process dies: live and resumed code see the same."""
    seeds = range(tens * 10, tens * 10 + 10)
    assert [problem for seed in seeds for problem in _problems("memory://", seed)] == []


def test_programs_on_disk(tmp_path: Path) -> None:
    """The same on SQLite."""
    urls = {seed: str(tmp_path / f"{seed}.db") for seed in range(ON_DISK)}
    assert [problem for seed, url in urls.items() for problem in _problems(url, seed)] == []


@pytest.mark.soak
def test_many_programs(tmp_path: Path) -> None:
    """As many programs as there is time for, some of them on disk."""
    search = Search("step-programs", goal={"programs": 20_000})
    for number in search.rounds(share=0.02):
        for seed in range(number * 50, number * 50 + 50):
            on_disk = seed % 10 == 0
            search.blame(*_problems(str(tmp_path / f"{seed}.db") if on_disk else "memory://", seed))
        search.count(programs=50)
    assert search.problems == []
