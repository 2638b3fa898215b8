"""Facets of runs: the values that they have, with how many runs have each."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice

import msgspec

from turnledger.adapters.http.routes.index.run_filter import RunFilter
from turnledger.ledger import Ledger

# Runs that are counted, values of each facet, and bytes of all together.
MOST_RUNS, MOST_VALUES, MOST_BYTES = 10_000, 50, 200_000


class Facets(msgspec.Struct, frozen=True):
    """How many runs have each value; tags by key. The most frequent values come first.

    `complete` is false if there are more runs, or more values, than were counted.
    """

    statuses: dict[str, int]
    agents: dict[str, int]
    prompts: dict[str, int]
    tags: dict[str, dict[str, int]]
    complete: bool


def facets(wanted: RunFilter, ledger: Ledger) -> Facets:
    """The facets of the runs that a filter names; runs that can't be read are left out."""
    statuses, agents, prompts = Counter[str](), Counter[str](), Counter[str]()
    tags: defaultdict[str, Counter[str]] = defaultdict(Counter)
    runs = wanted.runs(ledger, limit=MOST_RUNS + 1, on_damage=lambda run, error: None)
    for run in islice(runs, MOST_RUNS):
        statuses[run.status] += 1
        agents[run.agent] += 1
        prompts[run.prompt] += 1
        for key, value in run.tags.items():
            tags[key][value] += 1
    is_all = next(runs, None) is None
    agents.pop("", None)
    prompts.pop("", None)
    shown = _Shown()
    keys = shown.first(Counter({key: values.total() for key, values in tags.items()}))
    return Facets(
        shown.first(statuses),
        shown.first(agents),
        shown.first(prompts),
        {key: shown.first(tags[key]) for key in keys},
        is_all and shown.complete,
    )


class _Shown:
    """The most frequent values of several counters, as long as there is room."""

    def __init__(self) -> None:
        self._left = MOST_BYTES
        self.complete = True

    def first(self, counted: Counter[str]) -> dict[str, int]:
        found = {}
        for value, count in counted.most_common(MOST_VALUES):
            self._left -= len(msgspec.json.encode(value)) + 10
            if self._left < 0:
                break
            found[value] = count
        self.complete &= len(found) == len(counted)
        return found
