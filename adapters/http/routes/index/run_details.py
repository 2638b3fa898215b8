"""Details of the runs of a list: their tokens, whether a worker is alive, and a small shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Literal, TypeAlias

import msgspec

from turnledger.adapters.http.work import Work
from turnledger.ledger import Ledger, RunInfo
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.runs.transaction import Transaction
from turnledger.projections.records.overview import Overviews, RunOverview

# Seconds that a list may take to read events that it has not read before.
SECONDS = 0.5
Liveness: TypeAlias = Literal["live", "dead", "none"]


class RunDetail(msgspec.Struct, frozen=True):
    """What a list of runs shows of one beside its entry in the index.

    `worker` is "live" if a worker has the run now, "dead" if one had it and has not released it.
    `tokens` are those of the run's own model calls; null, with an empty `shape`, if its events
    were not read in time: ask again. `shape` has at most 60 characters: each stands for the same
    number of events, and shows a doubt, a failure, a resume or a wait if there is one among them.
    `seconds` are from its first own event to its last.
    """

    tokens: int | None
    worker: Liveness
    shape: str
    seconds: float


class RunDetails:
    """Makes details.

    Args:
        ledger: The ledger that has the runs.
        work: The threads to read in.
    """

    def __init__(self, ledger: Ledger, work: Work) -> None:
        self._ledger = ledger
        self._work = work
        self._overviews = Overviews(ledger)

    async def of(self, runs: Sequence[RunInfo]) -> dict[str, RunDetail]:
        """The details of these runs, by their ids."""
        workers = await self._work.append(lambda: self._workers(runs))
        return await self._work.read(lambda: self._made(runs, workers))

    def _workers(self, runs: Iterable[RunInfo]) -> dict[str, Liveness]:
        store = self._ledger.store
        leases = [lease for run in runs if (lease := store.lease(str(run.run_id)))]

        def look(tx: Transaction) -> dict[str, Liveness]:
            return {
                lease.run_id: "live" if tx.leases.is_live(lease) else "dead" for lease in leases
            }

        # Only a lease needs a transaction, which waits for other writers.
        return store.write(look) if leases else {}

    def _made(self, runs: Iterable[RunInfo], workers: dict[str, Liveness]) -> dict[str, RunDetail]:
        deadline = monotonic() + SECONDS
        found = {}
        for run in runs:
            known = self._overview(run, lambda: monotonic() > deadline)
            found[str(run.run_id)] = RunDetail(
                known.tokens if known else None,
                workers.get(str(run.run_id), "none"),
                known.shape if known else "",
                (run.updated_at - run.started_at).total_seconds(),
            )
        return found

    def _overview(self, run: RunInfo, cancelled: Callable[[], bool]) -> RunOverview | None:
        try:
            return self._overviews.of(run, cancelled)
        except DAMAGE:
            return None  # the list is of the index; `verify` is for the events
