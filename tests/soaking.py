"""How long `make soak` searches: SOAK_MINUTES in all, shared by the searches that take part.

A search that has a goal keeps its figures in a file, so that it may be stopped at any moment
and goes on in the next `make soak`. `python -m tests.soaking` prints what there is.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
SOAK_MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
SOAK_FOLDER = Path(os.environ.get("SOAK_FOLDER", ROOT / ".soak"))

BEGAN = time.monotonic()
# Of a problem, in characters: what a test prints of it is longer.
MOST_WORDS = 4000


def rounds(share: float) -> Iterator[int]:
    """Round numbers, for as long as this search's share of the time lasts; at least one."""
    ends = _end(share)
    number = 0
    while number == 0 or time.monotonic() < ends:
        number += 1
        yield number


def _end(share: float) -> float:
    """When a search's share is used up; or all of the time, if the shares are more than one."""
    now = time.monotonic()
    return min(now + SOAK_MINUTES * 60 * share, BEGAN + SOAK_MINUTES * 60)


class Kept(msgspec.Struct):
    """What is on disk of a search: how far it came, what it counted, on which code."""

    goal: dict[str, int]
    rounds: int = 0
    # When a search begins anew, rounds go on counting, so that no number is used twice.
    first_round: int = 1
    figures: dict[str, int] = {}
    problems: list[str] = []
    # What was found before the search began anew: told of until the file is deleted.
    earlier_problems: list[str] = []
    commits: list[str] = []
    seconds: float = 0.0

    @property
    def reached(self) -> bool:
        return all(self.figures.get(name, 0) >= wanted for name, wanted in self.goal.items())


class Search:
    """A search with a goal, in rounds: each has a number of its own, to be seeded with.

        search = Search("kills-sqlite", goal={"kills": 5000})
        for number in search.rounds(share=0.2):
            search.count(kills=...)
        assert search.problems == []

    A round counts when it is over. One that was interrupted is done again. When the goal was
    reached, or something was found, the next search begins at nothing, with other numbers.
    """

    def __init__(self, name: str, goal: Mapping[str, int]) -> None:
        self._path = SOAK_FOLDER / f"{name}.json"
        self._kept = _read(self._path, dict(goal))
        self._round: Counter[str] = Counter()

    @property
    def figures(self) -> Mapping[str, int]:
        return self._kept.figures

    @property
    def problems(self) -> list[str]:
        """What was found since the search began: one that found something has failed."""
        return self._kept.problems

    def count(self, **figures: int) -> None:
        """Add to the figures of the round that is on its way."""
        self._round.update(figures)

    def blame(self, *problems: str) -> None:
        """Something is wrong, and is written down at once; the search ends with this round."""
        if problems:
            self._kept.problems += problems
            self._write()

    @contextmanager
    def blaming(self, what: str) -> Iterator[None]:
        """Write down whatever fails in here; it goes on its way."""
        try:
            yield
        except Exception as error:
            self.blame(f"{what}: {type(error).__name__}: {error}"[:MOST_WORDS])
            raise

    def rounds(self, share: float) -> Iterator[int]:
        """Numbers of rounds until the goal is reached, a problem is found or the time is up."""
        kept = self._kept
        ends = _end(share)
        while True:
            began = time.monotonic()
            self._round.clear()
            yield kept.rounds + 1
            kept.seconds += time.monotonic() - began
            self._keep()
            if kept.reached or kept.problems or time.monotonic() >= ends:
                return

    def _keep(self) -> None:
        """The round is over, and counts."""
        kept = self._kept
        kept.rounds += 1
        kept.figures = dict(Counter(kept.figures) + self._round)
        commit = _commit()
        if commit not in kept.commits:
            kept.commits.append(commit)
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(self._kept))
        unfinished.replace(self._path)


def _read(path: Path, goal: dict[str, int]) -> Kept:
    """Where a search goes on: where it was interrupted, or at nothing."""
    if not path.exists():
        return Kept(goal)
    kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    if not kept.problems and not (kept.reached and kept.goal == goal):
        kept.goal = goal
        return kept
    # A round that found something may not be over; its number is used up all the same.
    rounds_begun = kept.rounds + bool(kept.problems)
    return Kept(
        goal,
        rounds=rounds_begun,
        first_round=rounds_begun + 1,
        earlier_problems=kept.earlier_problems + kept.problems,
    )


def _commit() -> str:
    """What code was searched; + marks one that is not committed."""
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def report() -> Iterator[str]:
    """Some lines for each search that has left figures."""
    for path in sorted(SOAK_FOLDER.glob("*.json")):
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        state = "goal reached" if kept.reached else "goes on"
        rounds_done = kept.rounds - kept.first_round + 1
        yield f"{path.stem}: {len(kept.problems)} problems; {state}"
        yield f"  {rounds_done} rounds up to number {kept.rounds}, {kept.seconds / 60:.1f} minutes"
        yield f"  on {', '.join(kept.commits)}"
        for name, count in kept.figures.items():
            goal = f" of {kept.goal[name]:,}" if name in kept.goal else ""
            yield f"  {count:>11,} {name}{goal}"
        yield from (f"  PROBLEM {problem}" for problem in kept.problems)
        yield from (f"  PROBLEM BEFORE {problem}" for problem in kept.earlier_problems)


if __name__ == "__main__":
    print("\n".join(report()) or f"No figures in {SOAK_FOLDER} yet: make soak.")
