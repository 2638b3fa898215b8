"""Rebuild: folds all runs again and replaces a stored table by the result.

The stored table stays in use until one transaction swaps the rows and the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from typing import Any, Literal

import msgspec

from turnledger.ledger import DerivedData, Ledger, Record
from turnledger.ledger.arguments import explain_arguments
from turnledger.projections.digests import canonical
from turnledger.projections.tables.parallel import Portion, Progress, over_runs
from turnledger.projections.tables.storage import (
    CARRY,
    ROW,
    TableMark,
    check_made,
    data_of,
    fingerprint,
    fold_page,
    next_page,
    sum_of,
    texts_of,
)
from turnledger.projections.tables.table import (
    Additions,
    RebuildOvertakenError,
    Table,
    table_tags,
)

# Events that are read in one go.
EVENTS_AT_ONCE = 1000

# Makes a table of all records up to a position: its mark, and its rows as they are stored.
Fold = Callable[[int], tuple[TableMark, dict[str, str]]]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A `row`, the memory of a `run`, or the `mark`, stored otherwise than the events say."""

    kind: Literal["row", "run", "mark"]
    key: str
    stored: Any
    folded: Any

    def __str__(self) -> str:
        what = f"{self.kind} {self.key}".strip()
        return f"{what}: stored is {_shown(self.stored)}, the events say {_shown(self.folded)}"


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rebuild or of its `verify`: from how much, and what differs."""

    name: str
    version: int
    position: int
    events: int
    rows: int
    verified: bool = False
    differences: tuple[Difference, ...] = ()
    # Records that can't be read and are not counted, as "run version".
    skipped: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.differences


@explain_arguments
def rebuild(
    ledger: Ledger,
    table: Table[Any],
    *,
    executor: Executor | None = None,
    workers: int = 1,
    verify: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Fold all runs again, and swap the result in for the stored table.

    Args:
        ledger: The ledger.
        table: The table.
        executor: Folds the runs instead of this process; its tasks are pickled.
        workers: How many processes to start, or how many there are behind the executor.
        verify: Change nothing: the result says how the stored table differs.
        progress: Called with the number of events that were folded, and of how many.

    Raises:
        RebuildOvertakenError: The table was replaced by one of another version meanwhile.
    """
    fold = partial(_fold, ledger, table, executor, workers, progress)
    data = data_of(ledger, table)
    if verify:
        return _verify(table, data, fold)
    before = data.watermark()
    mark, texts = fold(ledger.store.last_position() or 0)
    expected = {mark.fingerprint, before.fingerprint if before else mark.fingerprint}
    while True:
        watermark = data.watermark()
        if watermark is not None and watermark.fingerprint not in expected:
            raise RebuildOvertakenError(
                f"The table {table.name} was replaced by {watermark.fingerprint!r} during the "
                "rebuild. That one is kept, this one was thrown away.",
                table=table.name,
            )
        # What the stored table took in meanwhile is taken in here too: it never goes back.
        while watermark and mark.position < watermark.position:
            page = next_page(ledger, mark.position, EVENTS_AT_ONCE)
            if not page:
                break
            mark = _take_in(table, mark, page, texts)
        if data.advance(watermark, mark.watermark, texts, replace=True):
            return _report(table, mark, texts)


def _take_in(
    table: Table[Any], mark: TableMark, page: list[Record], texts: dict[str, str]
) -> TableMark:
    """Apply a page of records to rows in memory; the mark then."""
    changes, mark = fold_page(
        table, mark, page, lambda keys: {key: texts[key] for key in keys if key in texts}
    )
    for place, text in changes.items():
        if text is None:
            del texts[place]
        else:
            texts[place] = text
    return mark


def _fold(
    ledger: Ledger,
    table: Table[Any],
    executor: Executor | None,
    workers: int,
    progress: Progress | None,
    cut: int,
) -> tuple[TableMark, dict[str, str]]:
    """What all records up to a position make of a table."""
    total = Additions()
    task = partial(fold_portion, table, cut)
    parts = over_runs(ledger, task, executor=executor, workers=workers, progress=progress)
    with closing(parts):
        for part in parts:
            total.join(table, part)
    every = texts_of(total.rows, total.carries)
    texts = {place: text for place, text in every.items() if text is not None}
    skipped = tuple(sorted(total.skipped))
    return TableMark(fingerprint(table), cut, total.events, sum_of(texts), skipped), texts


def fold_portion(table: Table[Any], cut: int, ledger: Ledger, portion: Portion) -> Additions:
    """What the records of some runs add, up to a position of the ledger."""
    found, tags = Additions(), table_tags(table)
    for page in _pages(ledger, portion, cut):
        found.events += len(page)
        found.add(table, [record for record in page if record.tag in tags])
    found.carries = {run: carry for run, carry in found.carries.items() if carry is not None}
    return found


def _pages(ledger: Ledger, portion: Portion, cut: int) -> Iterator[list[Record]]:
    for run, after, until in portion:
        low = after
        while low < until:
            found = ledger.store.rows_as_found(run, low, until, limit=EVENTS_AT_ONCE)
            records = (Record(columns, ledger.codec) for columns in found)
            page = [record for record in records if record.position <= cut]
            yield page
            if len(page) < EVENTS_AT_ONCE:
                break
            low = page[-1].version


def _report(table: Table[Any], mark: TableMark, texts: dict[str, str], **more: Any) -> Rebuilt:
    return Rebuilt(
        name=table.name,
        version=table.version,
        position=mark.position,
        events=mark.events,
        rows=sum(place.startswith(ROW) for place in texts),
        skipped=mark.skipped,
        **more,
    )


def _verify(table: Table[Any], data: DerivedData, fold: Fold) -> Rebuilt:
    """How the stored table differs from what the events up to its position make."""
    found, stored = data.snapshot()
    watermark = check_made(table, found)
    mark, texts = fold(watermark.position)
    differences = _differences(stored, texts)
    if (folded := mark.watermark) != watermark:
        state = {"stored": watermark.state, "folded": folded.state}
        differences.append(Difference(kind="mark", key="", **state))
    return _report(table, mark, texts, verified=True, differences=tuple(differences))


def _differences(stored: dict[str, str], folded: dict[str, str]) -> list[Difference]:
    return [
        Difference(
            kind="run" if place.startswith(CARRY) else "row",
            key=place.removeprefix(CARRY).removeprefix(ROW),
            stored=_value(stored.get(place)),
            folded=_value(folded.get(place)),
        )
        for place in sorted(stored.keys() | folded.keys())
        if stored.get(place) != folded.get(place)
    ]


def _value(text: str | None) -> Any:
    """A stored value; its text as it is if that can't be read."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _shown(value: Any) -> str:
    return "nothing" if value is None else canonical(value).decode()
