"""Moments of a long run against a short one: steps with their patches, seeks and windows.

Times are processor time, in rounds that take the lengths in turns; wall time stands beside it.

A window takes a tenth of a millisecond, most of it to fetch what it touches. A short run fits the
processor's cache whole, and a long one does not. So the cache is emptied before each window, as it
is in a server that did other work since; what a window takes without that stands beside it.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from benchmarks.long_events import declarations
from benchmarks.measuring import Result, samples_ratio
from benchmarks.workload import run_of
from turnledger.ledger import ANY, Ledger, new_run_id
from turnledger.projections import Moments, RunState, step, window

LENGTHS = (1_000, 10_000, 100_000)
# Events that are appended at once, and how often a thing is done.
BATCH, STEPS, SEEKS, WINDOWS = 100, 300, 300, 40
ITEMS = 50
# Holds all states of the longest run.
BUDGET = 2**30
# More bytes than a processor's cache has.
CACHE = 64 * 2**20
# What a step may be more for a hundred times the events, and what a window may.
STEP, WINDOW = 2, 1.5


class Times(NamedTuple):
    """What one thing took, each time that it was done: in processor time and in wall time."""

    processor: list[float]
    wall: list[float]

    def take(self, work: Callable[[], object]) -> None:
        began, wall_began = time.process_time(), time.perf_counter()
        work()
        self.processor.append(time.process_time() - began)
        self.wall.append(time.perf_counter() - wall_began)

    def median(self) -> float:
        return statistics.median(self.processor)

    def shown(self) -> str:
        return f"{self.median() * 1e3:.2f}"


def measure(folder: Path) -> Iterator[Result]:
    with Ledger.open(folder / "moments.db") as ledger:
        runs = {events: _written(ledger, events) for events in LENGTHS}
        moments = Moments(ledger, declarations=declarations(), budget=BUDGET)
        states = {events: moments.at(run) for events, run in runs.items()}
        gc.collect()
        gc.freeze()
        yield _steps(ledger, moments, runs)
        yield _seeks(moments, runs[LENGTHS[-1]])
        for name in _lists(states[LENGTHS[0]]):
            yield _windows(name, states)
        gc.unfreeze()


def _written(ledger: Ledger, events: int) -> UUID:
    run, coming = new_run_id(), run_of(events)
    while batch := list(islice(coming, BATCH)):
        ledger.append(run, batch, ANY)
    return run


def _steps(ledger: Ledger, moments: Moments, runs: dict[int, UUID]) -> Result:
    """At random among the last events of each run, as many as the shortest has."""
    times, places = {events: Times([], []) for events in runs}, random.Random(18)
    for _ in range(STEPS):
        back = places.randrange(LENGTHS[0])
        for events, run in runs.items():
            version = events - back
            times[events].take(lambda r=run, v=version: step(ledger, r, v, moments=moments).patch())
    return _compared("a step with its patch", times, STEP)


def _compared(name: str, times: dict[int, Times], most: float) -> Result:
    """The longest run against the shortest."""
    short, long = times[LENGTHS[0]], times[LENGTHS[-1]]
    wall = statistics.median(long.wall) / statistics.median(short.wall)
    each = " / ".join(one.shown() for one in times.values())
    return Result(
        f"{name}, 100,000 events against 1,000 (p50)",
        samples_ratio(long.processor, short.processor),
        most,
        at_least=False,
        detail=f"wall {wall:.2f}; {each} ms at 1,000 / 10,000 / 100,000",
    )


def _seeks(moments: Moments, run: UUID) -> Result:
    times, versions = Times([], []), random.Random(18)
    for _ in range(SEEKS):
        version = versions.randint(1, LENGTHS[-1])
        times.take(lambda v=version: moments.at(run, v))
    half, most = _quantiles(times.processor)
    wall_half, wall_most = _quantiles(times.wall)
    detail = f"wall {wall_most / wall_half:.2f}; p50 {half * 1e3:.2f} ms, p95 {most * 1e3:.2f} ms"
    name = "a random seek in 100,000 events with warm moments, p95 against p50"
    return Result(name, most / half, 3, at_least=False, detail=detail)


def _quantiles(times: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=20)
    return cuts[9], cuts[18]


def _lists(state: RunState) -> list[str]:
    """The lists that have enough items at any length, and the views without lists.

    Not the gaps of the timeline: they follow from all spans, and cost the run's length.
    """
    found = []
    for view in state.lazy_json():
        outline = window(state, view, limit=0)
        named = [one for one in outline.lists if window(state, one, limit=0).total >= 2 * ITEMS]
        found += named or ([] if outline.lists else [view])
    return found


def _windows(name: str, states: dict[int, RunState]) -> Result:
    totals = {events: window(state, name, limit=0).total for events, state in states.items()}
    other_work = bytes(CACHE)

    def taken(before: Callable[[], object]) -> dict[int, Times]:
        times, places = {events: Times([], []) for events in states}, random.Random(18)
        for _ in range(WINDOWS):
            for events, state in states.items():
                start = places.randint(0, max(totals[events] - ITEMS, 0))
                before()
                times[events].take(lambda s=state, p=start: window(s, name, p, ITEMS))
        return times

    found = _compared(f"a window of {name}", taken(lambda: other_work.count(1)), WINDOW)
    cached = taken(lambda: None)
    ratio = cached[LENGTHS[-1]].median() / cached[LENGTHS[0]].median()
    return replace(found, detail=f"{found.detail}; with what the cache holds {ratio:.2f}")
