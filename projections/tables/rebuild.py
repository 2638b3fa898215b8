"""Making a table anew from all runs, beside the one that is shown, and swapping when complete.

Until the swap the old table stays as it is, whoever is killed. What was left behind is
cleared by the next swap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing, suppress
from functools import partial
from typing import Any, Literal

import msgspec

from turnledger.ledger import Ledger, Mark, Record, Row, Shelf, TurnledgerError
from turnledger.projections.digests import canonical
from turnledger.projections.tables.parallel import Portion, Progress, over_runs
from turnledger.projections.tables.storage import (
    CARRY,
    Standing,
    check_made,
    fingerprint,
    new_generation,
    next_page,
    read_row,
    shelf_of,
    sum_of,
    texts_of,
    turned,
)
from turnledger.projections.tables.table import (
    Additions,
    RebuildOvertakenError,
    Table,
    TableDamagedError,
    additions,
    table_tags,
)

# Rows that are written in one commit, and events that are read in one go.
ROWS_AT_ONCE = 1000
EVENTS_AT_ONCE = 1000


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is kept otherwise than the events say; None is where there is nothing.

    It is a `row` under its key, what is remembered of a `run`, or the `mark`.
    """

    kind: Literal["row", "run", "mark"]
    key: str
    stored: Any
    folded: Any

    def __str__(self) -> str:
        what = f"{self.kind} {self.key}".strip()
        return f"{what}: kept is {_shown(self.stored)}, the events say {_shown(self.folded)}"


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What was made anew, or only looked at: of how much, and what differs from what was kept."""

    name: str
    version: int
    position: int
    events: int
    rows: int
    verified: bool = False
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.differences


def rebuild(
    ledger: Ledger,
    table: Table[Any],
    *,
    executor: Executor | None = None,
    workers: int = 1,
    verify: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Fold all runs again, and show that instead of the table that is kept.

    `workers` is how many processes to start, or how many there are behind the `executor`.
    With `verify` nothing is changed: the answer says how what is kept differs. `progress` is
    told how many events were folded, and of how many.
    """
    folding = partial(_folded, ledger, table, executor, workers, progress)
    if verify:
        return _compared(ledger, table, folding)
    shelf = shelf_of(ledger, table)
    began = shelf.mark()
    generation = new_generation(ledger, above=began.generation)
    cut = ledger.store.max_notification_id() or 0
    made = _Made(ledger, table, shelf, folding(cut), cut, generation)
    try:
        made.write()
        made.swap(began)
    except BaseException:
        with suppress(TurnledgerError):
            shelf.clear(generation)
        raise
    return made.report()


def _folded(
    ledger: Ledger,
    table: Table[Any],
    executor: Executor | None,
    workers: int,
    progress: Progress | None,
    cut: int,
) -> Additions:
    """What all records up to a position add."""
    total = Additions()
    task = partial(fold_portion, table, cut)
    parts = over_runs(ledger, task, executor=executor, workers=workers, progress=progress)
    with closing(parts):
        for part in parts:
            total.join(table, part)
    return total


def fold_portion(table: Table[Any], cut: int, ledger: Ledger, portion: Portion) -> Additions:
    """What the own records of some runs add, up to a position of the ledger."""
    events, tags, codec = 0, table_tags(table), ledger.codec

    def read() -> Iterator[Record]:
        nonlocal events
        for page in _pages(ledger, portion, cut):
            events += len(page)
            yield from (Record(row, codec) for row in page if row.tag in tags)

    found = additions(table, read())
    found.carries = {run: carry for run, carry in found.carries.items() if carry is not None}
    found.events = events
    return found


def _pages(ledger: Ledger, portion: Portion, cut: int) -> Iterator[list[Row]]:
    for run, after, until in portion:
        low = after
        while low < until:
            page = ledger.store.rows(run, low, until, backwards=False, limit=EVENTS_AT_ONCE)
            # Within a run, positions grow.
            yield (
                page
                if page and page[-1].position <= cut
                else [row for row in page if row.position <= cut]
            )
            if len(page) < EVENTS_AT_ONCE or page[-1].position > cut:
                break
            low = page[-1].version


class _Made:
    """A table that was made anew and is not shown yet."""

    def __init__(
        self,
        ledger: Ledger,
        table: Table[Any],
        shelf: Shelf,
        folded: Additions,
        cut: int,
        generation: int,
    ) -> None:
        self._ledger = ledger
        self._table = table
        self._shelf = shelf
        self._texts = _kept(folded)
        total = sum_of(self._texts)
        self._at = Standing(fingerprint(table), generation, cut, folded.events, total)

    def write(self) -> None:
        """Put the rows beside those that are shown, some at a time."""
        generation = self._at.generation
        self._shelf.clear(generation)
        places = list(self._texts)
        for start in range(0, len(places), ROWS_AT_ONCE):
            some = places[start : start + ROWS_AT_ONCE]
            self._shelf.put({place: self._texts[place] for place in some}, generation)

    def swap(self, began: Mark) -> None:
        """Show it, as far as the other one was by then: what is shown never goes back."""
        changes: dict[str, str | None] = {}
        while True:
            shown = self._shelf.mark()
            if shown.generation != began.generation:
                raise RebuildOvertakenError(
                    f"The table {self._table.name} was made anew by somebody else in the "
                    "meantime. Theirs is shown, this one was thrown away.",
                    table=self._table.name,
                )
            while self._at.position < shown.position and (page := self._next_page()):
                changes.update(self._turn(page))
            mark = self._at.mark
            if self._shelf.put(changes, mark.generation, expected=shown, mark=mark):
                return

    def _next_page(self) -> list[Record]:
        return next_page(self._ledger, self._at.position, EVENTS_AT_ONCE)

    def _turn(self, page: list[Record]) -> dict[str, str | None]:
        texts = self._texts
        changes, self._at = turned(
            self._table, self._at, page, lambda keys: {k: texts[k] for k in keys if k in texts}
        )
        for place, text in changes.items():
            if text is None:
                del texts[place]
            else:
                texts[place] = text
        return changes

    def report(self) -> Rebuilt:
        return _report(self._table, self._at, self._texts)


def _kept(folded: Additions) -> dict[str, str]:
    texts = texts_of(folded.rows, folded.carries)
    return {place: text for place, text in texts.items() if text is not None}


def _report(table: Table[Any], at: Standing, texts: dict[str, str], **more: Any) -> Rebuilt:
    return Rebuilt(
        name=table.name,
        version=table.version,
        position=at.position,
        events=at.events,
        rows=sum(1 for place in texts if not place.startswith(CARRY)),
        **more,
    )


# --- comparing ---------------------------------------------------------------------


def _compared(ledger: Ledger, table: Table[Any], folding: Callable[[int], Additions]) -> Rebuilt:
    """How what is shown differs from what the events up to its position say."""
    mark, stored = shelf_of(ledger, table).shown()
    check_made(table, mark)
    folded = folding(mark.position)
    texts = _kept(folded)
    total = sum_of(texts)
    at = Standing(mark.fingerprint, mark.generation, mark.position, folded.events, total)
    found = [
        _difference(place, stored.get(place), texts.get(place))
        for place in sorted(stored.keys() | texts.keys())
        if stored.get(place) != texts.get(place)
    ]
    if at.mark != mark:
        found.append(Difference(kind="mark", key="", stored=mark.state, folded=at.mark.state))
    return _report(table, at, texts, verified=True, differences=tuple(found))


def _difference(place: str, stored: str | None, folded: str | None) -> Difference:
    if place.startswith(CARRY):
        run = place.removeprefix(CARRY)
        return Difference(kind="run", key=run, stored=_read(stored), folded=_read(folded))
    key, new = _row(folded)
    found, old = _row(stored)
    if key is not None and found not in (None, key):
        old = stored  # a row under another's key: show it as it is
    shown = next((k for k in (key, found) if k is not None), place)
    return Difference(kind="row", key=shown, stored=old, folded=new)


def _row(text: str | None) -> tuple[str | None, Any]:
    """A row's key and value; its text as it is where it can't be read."""
    try:
        return (None, None) if text is None else read_row(text, "")
    except TableDamagedError:
        return None, text


def _read(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _shown(value: Any) -> str:
    return "nothing" if value is None else canonical(value).decode()
