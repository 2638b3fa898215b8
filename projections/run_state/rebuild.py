"""Making the stored folds of all runs anew, or comparing them with what the events say."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from typing import NamedTuple

import msgspec

from turnledger.ledger import Ledger
from turnledger.projections.run_state.state import built_in
from turnledger.projections.run_state.stored import (
    FEWEST_EVENTS,
    SHELF,
    Stored,
    fold_cold,
    key_of,
    row_of,
)
from turnledger.projections.tables.parallel import Portion, Progress, over_runs
from turnledger.projections.tables.rebuild import Difference, Rebuilt

NAME = "folds"


class _Part(NamedTuple):
    """What came of a portion of the runs."""

    events: int
    rows: dict[str, str | None]
    differences: tuple[Difference, ...] = ()


def rebuild_folds(
    ledger: Ledger,
    *,
    executor: Executor | None = None,
    workers: int = 1,
    verify: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Fold all runs again and store that. Each run's folds are replaced in one commit.

    With `verify` nothing is changed: the answer names the folds that the events contradict.
    """
    events = rows = 0
    differences: list[Difference] = []
    task = _compared if verify else _folded
    parts = over_runs(ledger, task, executor=executor, workers=workers, progress=progress)
    with closing(parts):
        for part in parts:
            events += part.events
            rows += sum(row is not None for row in part.rows.values())
            differences += part.differences
            if part.rows and not verify:
                ledger.shelf(SHELF).put(part.rows, 0)
    return Rebuilt(
        name=NAME,
        version=1,
        position=ledger.store.max_notification_id() or 0,
        events=events,
        rows=rows,
        verified=verify,
        differences=tuple(differences),
    )


def _folded(ledger: Ledger, portion: Portion) -> _Part:
    """The rows of runs that are long enough to have some; None for those of the others."""
    rows: dict[str, str | None] = {}
    events = 0
    for run, after, until in portion:
        events += until - after
        if until > FEWEST_EVENTS:
            rows.update(_rows_at(ledger, run, until))
        else:
            rows.update({key_of(run, p): None for p in built_in()})
    kept = ledger.shelf(SHELF).get([key for key, row in rows.items() if row is None], 0)
    return _Part(events, {k: row for k, row in rows.items() if row is not None or k in kept})


def _compared(ledger: Ledger, portion: Portion) -> _Part:
    found: list[Difference] = []
    rows: dict[str, str | None] = {}
    events = 0
    for run, after, until in portion:
        events += until - after
        kept = ledger.shelf(SHELF).get([key_of(run, p) for p in built_in()], 0)
        rows.update(kept)
        found += _differences(ledger, run, kept, until)
    return _Part(events, rows, tuple(found))


def _differences(ledger: Ledger, run: str, kept: dict[str, str], head: int) -> Iterator[Difference]:
    by_version: dict[int, dict[str, str]] = {}
    for key, row in kept.items():
        try:
            version = msgspec.json.decode(row, type=Stored).version
        except ValueError:
            version = 0
        if 0 < version <= head:
            by_version.setdefault(version, {})[key] = row
        else:
            yield Difference(kind="row", key=key, stored=row, folded=None)
    for version, rows in by_version.items():
        made = _rows_at(ledger, run, version)
        for key, row in rows.items():
            if made.get(key) != row:
                yield Difference(kind="row", key=key, stored=row, folded=made.get(key))


def _rows_at(ledger: Ledger, run: str, version: int) -> dict[str, str | None]:
    projections = built_in()
    states, last = fold_cold(ledger, run, projections, version)
    if last is None:
        return {}
    pairs = zip(projections, states, strict=True)
    return {key_of(run, projection): row_of(projection, state, last) for projection, state in pairs}
