"""Where runs go on from their parents, in rows as they are stored: each place is looked up once.

For a verification. A fork of a fork of a fork would otherwise climb all of them again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from turnledger.ledger.events.types import Event, RunStarted
from turnledger.ledger.runs.record_rows import RawRow
from turnledger.ledger.stores.base import LedgerRecorder


class ForkPoint(NamedTuple):
    """The record that a run goes on from; whether its commit ends with it."""

    digest: Any
    moment: Any
    ends_commit: bool


class ForkPoints:
    """The records of one store that runs go on from."""

    def __init__(self, store: LedgerRecorder, decode: Callable[[RawRow], Event | None]) -> None:
        self._store = store
        self._decode = decode
        # What each run goes on from, and the record that a version of a run's lineage is.
        self._origins: dict[str, tuple[str, int] | None] = {}
        self._found: dict[tuple[str, int], ForkPoint | None] = {}

    def learn(self, run_id: str, first: Event | None) -> None:
        """What a run goes on from, by its first own event."""
        origin = None
        if isinstance(first, RunStarted) and first.parent is not None:
            origin = (str(first.parent), first.at)
        self._origins[run_id] = origin

    def find(self, run_id: str, version: int) -> ForkPoint | None:
        """The record that a version of a run's lineage is; None without one, or in a circle."""
        walked: set[tuple[str, int]] = set()
        owner, found = run_id, None
        while (owner, version) not in walked:
            if (owner, version) in self._found:
                found = self._found[owner, version]
                break
            walked.add((owner, version))
            origin = self._origin(owner)
            if origin is None or version > origin[1]:
                found = self._look(owner, version)
                break
            owner = origin[0]
        for place in walked:
            self._found[place] = found
        return found

    def _origin(self, run_id: str) -> tuple[str, int] | None:
        if run_id not in self._origins:
            first = next(iter(self._store.raw_rows(run_id.encode())), None)
            self.learn(run_id, self._decode(first) if first is not None else None)
        return self._origins[run_id]

    def _look(self, run_id: str, version: int) -> ForkPoint | None:
        rows = list(islice(self._store.raw_rows(run_id.encode(), version), 2))
        if not rows or rows[0][2] != version:
            return None
        moment = rows[0][5]
        goes_on = len(rows) == 2 and (rows[1][2], rows[1][5]) == (version + 1, moment)
        return ForkPoint(rows[0][6], moment, not goes_on)
