"""Ratios of two costs in one run: rounds interleaved, medians compared.

Machines are shared and noisy. Both sides of a ratio are measured in turns, so that
noise falls on both, and no number here is an absolute time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One line of the table: what was reached, and what had to be; None where there is no goal."""

    name: str
    reached: float
    bar: float | None
    at_least: bool
    detail: str = ""

    @property
    def ok(self) -> bool:
        if self.bar is None:
            return True
        return self.reached >= self.bar if self.at_least else self.reached <= self.bar


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def speed(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 15) -> float:
    """How fast ours is as a multiple of theirs: the median of rounds taken in turns."""
    gc.collect()
    gc.freeze()  # the material that was made beforehand need not be traversed
    ratios = []
    for number in range(rounds + 1):
        if number % 2:
            mine, other = seconds(ours), seconds(theirs)
        else:
            other, mine = seconds(theirs), seconds(ours)
        if number:  # the first round warms up
            ratios.append(other / mine)
    gc.unfreeze()
    return statistics.median(ratios)
