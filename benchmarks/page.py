"""A step on the page, from the key to the paint: in a run of 1,000 events and in one of 100,000.

Measured in the page by its own clock: until the conversation is that of the new version, and two
pictures of the screen have passed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from uuid import UUID

from benchmarks.long_events import long_run
from benchmarks.measuring import Result, samples_ratio
from tests.page.harness.browser import driving, started
from tests.page.harness.served import Served
from tests.page.harness.visit import Visit
from turnledger.ledger import ANY, Ledger, new_run_id

SHORT, LONG, BATCH = 1000, 100_000, 1000
STEPS, ROUNDS = 20, 6
STEP = """async (version) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const began = performance.now();
  window.dispatchEvent(new KeyboardEvent("keydown", { key: "k" }));
  await frame();
  await frame();
  const first = performance.now() - began;
  while (!document.querySelector(`.turns[data-version="${version}"]`)) await frame();
  await frame();
  await frame();
  return [first, performance.now() - began];
}"""


def measure(folder: Path) -> Iterator[Result]:
    db = folder / "page.db"
    with Ledger.open(db) as ledger:
        runs = [_written(ledger, events) for events in (SHORT, LONG)]
    with Served(db) as served, started() as browser, driving():
        visits = [Visit(browser, served) for _ in runs]
        at = [
            _opened(visit, run, events)
            for visit, run, events in zip(visits, runs, (SHORT, LONG), strict=True)
        ]
        first: list[list[float]] = [[], []]
        whole: list[list[float]] = [[], []]
        for number in range(ROUNDS):
            for place, visit in enumerate(visits):
                visit.page.bring_to_front()
                for _ in range(STEPS):
                    at[place] -= 1
                    times = visit.page.evaluate(STEP, at[place])
                    if number:  # the first round warms up
                        first[place].append(times[0])
                        whole[place].append(times[1])
        for visit in visits:
            visit.close()
    for name, times in (("the event", first), ("the conversation", whole)):
        short, long = map(statistics.median, times)
        yield Result(
            f"a step until {name} is painted, {LONG:,} events against {SHORT:,}",
            samples_ratio(times[1], times[0]),
            2,
            at_least=False,
            detail=f"{short:.0f} ms and {long:.0f} ms",
        )


def _written(ledger: Ledger, events: int) -> UUID:
    run, coming = new_run_id(), long_run(events)
    while batch := list(islice(coming, BATCH)):
        ledger.append(run, batch, ANY)
    return run


def _opened(visit: Visit, run: UUID, events: int) -> int:
    """The version that the page is at: before the end, which it would follow."""
    visit.open(f"/runs/{run}?at={events - 1}")
    visit.expect_version(events - 1)
    visit.settle()
    return events - 1
