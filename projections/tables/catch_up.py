"""Keeping a table up to date: a page of the ledger, what it changes, one commit.

Rows and mark change together, and only if the mark is the one that was read. So each event
counts exactly once, wherever a process is killed and however many do this at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event as Flag
from typing import Any, NamedTuple

from turnledger.ledger import NO_MARK, Ledger, Mark
from turnledger.projections.tables.rebuild import rebuild
from turnledger.projections.tables.storage import (
    Standing,
    check_made,
    fingerprint,
    new_generation,
    next_page,
    shelf_of,
    table_rows,
    turned,
    version_of,
)
from turnledger.projections.tables.table import RebuildOvertakenError, Table

BATCH = 500


class _Place(NamedTuple):
    """The mark that is stored, the events that it covers, and how far was read since."""

    stored: Mark
    events: int
    at: Standing


def catch_up(
    ledger: Ledger,
    table: Table[Any],
    *,
    batch: int = BATCH,
    follow: bool = False,
    stop: Flag | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Take a table as far as the ledger is; how many events this call brought it further.

    A table that was never made is begun, one of an older version is made anew. `batch` is
    how many events are read, and committed, at a time. With `follow` it goes on waiting for
    more, until `stop`. `progress` is told how many events it has been so far.
    """
    shelf = shelf_of(ledger, table)
    count = 0
    place = _look(ledger, table)
    while True:
        stored, at = place.stored, place.at
        page = next_page(ledger, at.position, batch, follow=follow, stop=stop)
        try:
            changes, after = turned(table, at, page, partial(shelf.get, generation=at.generation))
        except Exception:
            if shelf.mark() != stored:
                place = _look(ledger, table)  # the rows may have been replaced while it read them
                continue
            _look_for_damage(ledger, table, stored)
            raise
        unwritten = after.events - place.events
        if page and not changes and unwritten < batch:
            # Events that mean nothing to the table are not worth a commit each.
            place = _Place(stored, place.events, after)
            continue
        if after.mark != stored:
            if not shelf.put(changes, at.generation, expected=stored, mark=after.mark):
                place = _look(ledger, table)  # another process was quicker with these
                continue
            place = _Place(after.mark, after.events, after)
            count += unwritten
            if progress is not None:
                progress(count)
        if not page:
            return count


def _look(ledger: Ledger, table: Table[Any]) -> _Place:
    """Where to go on from; a table of an older meaning is made anew first."""
    shelf, meaning = shelf_of(ledger, table), fingerprint(table)
    while True:
        mark = shelf.mark()
        if mark == NO_MARK:
            return _Place(mark, 0, Standing(meaning, new_generation(ledger)))
        standing = Standing.of(mark, table.name)
        if mark.fingerprint == meaning:
            return _Place(mark, standing.events, standing)
        if version_of(mark) > table.version:
            check_made(table, mark)
        with suppress(RebuildOvertakenError):
            rebuild(ledger, table)


def _look_for_damage(ledger: Ledger, table: Table[Any], stored: Mark) -> None:
    """If the rows are not what was written, that is what to say, not what came of it."""
    if stored != NO_MARK:
        table_rows(ledger, table)
