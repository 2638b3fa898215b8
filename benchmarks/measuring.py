"""Ratios of two costs in one run: rounds interleaved, medians compared, with their spread.

Machines are shared and noisy. Both sides of a ratio are measured in turns, so that noise falls
on both. How much the baseline itself varied decides whether a missed goal means anything.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import psutil

Work: TypeAlias = Callable[[], object]
Verdict: TypeAlias = Literal["", "ok", "missed", "too noisy to tell"]


@dataclass(frozen=True)
class Figure:
    """What was measured in rounds: the median and the quartiles.

    Attributes:
        median: The figure.
        low: The lower quartile.
        high: The upper quartile.
        noise: The quartiles' distance of the baseline's own times, as a share of their median.
        cpu: For a ratio of wall times: CPU time as a multiple of the baseline's.
    """

    median: float
    low: float
    high: float
    noise: float = 0.0
    cpu: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], baseline: Sequence[float] = ()) -> Figure:
        """The figure of these values; `baseline` are the times that they were divided by."""
        low, median, high = _quartiles(values)
        noise = 0.0
        if baseline:
            first, middle, third = _quartiles(baseline)
            noise = (third - first) / middle
        return cls(median, low, high, noise)

    def inverse(self) -> Figure:
        """A speed as a cost, or a cost as a speed."""
        return replace(self, median=1 / self.median, low=1 / self.high, high=1 / self.low)

    def has_moved(self, before: Figure) -> bool:
        """Whether it differs from an earlier one by more than the spread of either."""
        spread = max(self.high - self.low, before.high - before.low)
        return abs(self.median - before.median) > spread


@dataclass(frozen=True)
class Result:
    """One line of the table: what was reached, and what had to be; None where there is no goal.

    Attributes:
        name: What was measured, and against what.
        reached: A plain number where there is no spread: a count, or one measurement.
        bar: The goal.
        at_least: Whether the goal is a lower limit.
        detail: Further figures.
        bare: The same against a baseline that does less than a ledger must.
    """

    name: str
    reached: Figure | float
    bar: float | None
    at_least: bool
    detail: str = ""
    bare: Figure | None = None

    @property
    def value(self) -> float:
        return self.reached.median if isinstance(self.reached, Figure) else self.reached

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is reached; a baseline that varies more than the gap can't tell."""
        if self.bar is None:
            return ""
        if self.value >= self.bar if self.at_least else self.value <= self.bar:
            return "ok"
        noise = self.reached.noise if isinstance(self.reached, Figure) else 0.0
        return "too noisy to tell" if noise * self.bar > abs(self.value - self.bar) else "missed"


class Time(NamedTuple):
    """What one round took, in seconds."""

    wall: float
    cpu: float


def own_cpu() -> float:
    """CPU seconds of this process, and of its processes that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def family_cpu() -> float:
    """CPU seconds with those of processes that it has started and that still run, in 10 ms."""
    alive = (one.cpu_times() for one in psutil.Process().children(recursive=True))
    return own_cpu() + float(sum(times.user + times.system for times in alive))


def taken(work: Work, cpu: Callable[[], float] = own_cpu) -> Time:
    gc.collect()
    before, started = cpu(), time.perf_counter()
    work()
    return Time(time.perf_counter() - started, cpu() - before)


def in_turns(
    works: Sequence[Work], rounds: int = 15, cpu: Callable[[], float] = own_cpu
) -> list[list[Time]]:
    """The times of each piece of work, in rounds that begin with another one each.

    Args:
        works: What is measured.
        rounds: How often, after a first round that warms up.
        cpu: Gives the CPU seconds so far of all that takes part.
    """
    gc.collect()
    gc.freeze()  # the material that was made beforehand need not be traversed
    times: list[list[Time]] = [[] for _ in works]
    for number in range(rounds + 1):
        for turn in range(len(works)):
            place = (number + turn) % len(works)
            time_taken = taken(works[place], cpu)
            if number:
                times[place].append(time_taken)
    gc.unfreeze()
    return times


def cpu_ratio(ours: Sequence[Time], theirs: Sequence[Time]) -> Figure:
    """The CPU time of ours as a multiple of theirs."""
    ratios = [mine.cpu / other.cpu for mine, other in zip(ours, theirs, strict=True)]
    return Figure.of(ratios, [other.cpu for other in theirs])


def speed_ratio(ours: Sequence[Time], theirs: Sequence[Time]) -> Figure:
    """How fast ours is as a multiple of theirs, by wall time."""
    ratios = [other.wall / mine.wall for mine, other in zip(ours, theirs, strict=True)]
    figure = Figure.of(ratios, [other.wall for other in theirs])
    return replace(figure, cpu=cpu_ratio(ours, theirs).median)


def samples_ratio(above: Sequence[float], below: Sequence[float], parts: int = 10) -> Figure:
    """The ratio of two medians, of samples taken in turns: its spread is over parts of them."""

    def medians(samples: Sequence[float]) -> list[float]:
        size = max(len(samples) // parts, 1)
        cut = (samples[at : at + size] for at in range(0, size * parts, size))
        return [statistics.median(part) for part in cut if part]

    over, under = medians(above), medians(below)
    ratios = [one / other for one, other in zip(over, under, strict=True)]
    median = statistics.median(above) / statistics.median(below)
    return replace(Figure.of(ratios, under), median=median)


def speed(ours: Work, theirs: Work, rounds: int = 15, cpu: Callable[[], float] = own_cpu) -> Figure:
    """How fast ours is as a multiple of theirs: rounds taken in turns."""
    return speed_ratio(*in_turns((ours, theirs), rounds, cpu))


def shown(value: float) -> str:
    """A figure in as many digits as it is good for."""
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high
