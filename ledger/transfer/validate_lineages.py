"""Whose a version is: which run of a line of forks and continuations recorded it.

The line may be as long as the file, and every run of it may ask, so nobody walks it: each run
knows the next run above that recorded something it shares, and one far above.
"""

from __future__ import annotations

from typing import NamedTuple


class _Run(NamedTuple):
    """`at` is the version after which a run has records of its own."""

    at: int
    depth: int
    above: str
    far_above: str


class Lineages:
    """The runs that were added, parents before children."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run_id: str, parent: str | None = None, at: int = 0) -> None:
        """A run that goes on from a version of its parent, or from nothing."""
        if parent is None:
            self._runs[run_id] = _Run(0, 0, run_id, run_id)
            return
        if parent not in self._runs:
            self.add(parent)
        # A fork of what its parent only shares goes on from whoever recorded that. So `at`
        # falls with every step up, and steps that double in length find a place among them.
        above = self.owner(parent, at)
        near = self._runs[above]
        far = self._runs[near.far_above]
        even = near.depth - far.depth == far.depth - self._runs[far.far_above].depth
        far_above = far.far_above if even else above
        self._runs[run_id] = _Run(at, near.depth + 1, above, far_above)

    def owner(self, run_id: str, version: int) -> str:
        """The run that a version of this run's lineage is an own record of."""
        runs = self._runs
        while (run := runs.get(run_id)) is not None and run.depth and version <= run.at:
            far = runs[run.far_above]
            run_id = run.far_above if far.depth and version <= far.at else run.above
        return run_id
