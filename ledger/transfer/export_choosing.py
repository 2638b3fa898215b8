"""Which runs an export holds, in which order, and where they go on from one another.

Costs memory for each run, never for each event.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from turnledger.ledger.errors import IntegrityFailureError, RunNotFoundError
from turnledger.ledger.integrity.verify import every_run
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.ledger.runs.index import RunRow, damaged
from turnledger.ledger.stores.base import LedgerRecorder
from turnledger.ledger.transfer.validate_lineages import Lineages

# Of each run, the digests of the versions that others go on from.
ForkPoints: TypeAlias = dict[str, dict[int, bytes]]


class Chosen:
    """The runs of an export, parents before children, each as it stands now."""

    def __init__(self, store: LedgerRecorder, wanted: Iterable[RunId] | None) -> None:
        """What is wanted and what that descends from, or with None the whole ledger."""
        self.runs = _in_order(_found(store, wanted))
        self._lineages = Lineages()
        self.fork_points: ForkPoints = {}
        for run in self.runs:
            self._lineages.add(run.run_id, run.parent, run.parent_version)
            if run.parent is not None:
                self.fork_points.setdefault(self.owner_before(run), {})[run.parent_version] = b""
        self.runs = [self._long_enough(store, run) for run in self.runs]

    def owner_before(self, run: RunRow) -> str:
        """Whose record comes before a fork's or continuation's first own one."""
        assert run.parent is not None
        return self._lineages.owner(run.parent, run.parent_version)

    def _long_enough(self, store: LedgerRecorder, run: RunRow) -> RunRow:
        """Looked up one by one: a child may be of a version that its parent got just then."""
        if run.version >= max(self.fork_points.get(run.run_id, (0,))):
            return run
        return _sound(store.run(run.run_id) or run)


def _found(store: LedgerRecorder, wanted: Iterable[RunId] | None) -> dict[str, RunRow]:
    found: dict[str, RunRow] = {}
    if wanted is None:
        found = {row.run_id: _sound(row) for row in every_run(store)}
        # Listed page by page: one that came in between may have a parent that did too.
        names = [row.parent for row in found.values() if row.parent is not None]
    else:
        names = [canonical_id(run) for run in wanted]
    for name in names:
        current: str | None = name
        while current is not None and current not in found:
            row = store.run(current)
            if row is None:
                raise RunNotFoundError(current)
            found[current] = _sound(row)
            current = row.parent
    return found


def _in_order(found: dict[str, RunRow]) -> list[RunRow]:
    """By when they began, then by id; but a child never before its parent.

    Clocks step back, and machines' clocks differ: a child's beginning may well be before its
    parent's.
    """
    children: dict[str, list[tuple[int, str]]] = {}
    ready: list[tuple[int, str]] = []
    for run in found.values():
        place = ready if run.parent is None else children.setdefault(run.parent, [])
        place.append((run.started_at, run.run_id))
    heapify(ready)
    ordered: list[RunRow] = []
    while ready:
        _, run_id = heappop(ready)
        ordered.append(found[run_id])
        for child in children.pop(run_id, ()):
            heappush(ready, child)
    if children:
        raise IntegrityFailureError(
            f"The index says that run {min(children)} descends from itself: it is damaged. "
            "Nothing was exported. Verify the ledger, and rebuild the index."
        )
    return ordered


def _sound(run: RunRow) -> RunRow:
    """A damaged index may hold anything in the place of a number."""
    for name in ("version", "parent_version", "started_at"):
        number = getattr(run, name)
        if not isinstance(number, int):
            raise damaged(run.run_id, f"its {name} is {number!r:.80}")
    return run
