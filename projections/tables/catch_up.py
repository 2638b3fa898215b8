"""Catch-up: brings a table up to date, a page of events and one commit at a time.

Rows and watermark change together, so each event counts exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event as Flag
from typing import Any

from turnledger.ledger import Ledger, Watermark
from turnledger.ledger.arguments import explain_arguments
from turnledger.projections.tables.rebuild import rebuild
from turnledger.projections.tables.storage import (
    TableMark,
    check_made,
    data_of,
    fingerprint,
    fold_page,
    next_page,
    table_rows,
    version_of,
)
from turnledger.projections.tables.table import RebuildOvertakenError, Table

BATCH = 500


@explain_arguments
def catch_up(
    ledger: Ledger,
    table: Table[Any],
    *,
    batch: int = BATCH,
    follow: bool = False,
    stop: Flag | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Bring a table up to date with the ledger; the number of events that this call took in.

    A table that was never made is begun, one of an older version is rebuilt.

    Args:
        ledger: The ledger.
        table: The table.
        batch: How many events are read, and committed, at a time.
        follow: Go on waiting for more events, until `stop`.
        stop: Ends the call when it is set.
        progress: Called after each commit with the number of events so far.
    """
    data = data_of(ledger, table)
    stored, mark = _begin(ledger, table)
    count = pending = 0
    while True:
        page = next_page(ledger, mark.position, batch, follow=follow, stop=stop)
        try:
            changes, after = fold_page(table, mark, page, data.get if stored else _no_rows)
        except Exception:
            if data.watermark() == stored:
                if stored is not None:
                    table_rows(ledger, table)  # if the rows are damaged, that is the error
                raise
            # The rows were replaced while they were read.
            (stored, mark), pending = _begin(ledger, table), 0
            continue
        mark, pending = after, pending + len(page)
        if page and not changes and pending < batch:
            continue  # events that the table doesn't read are not worth a commit each
        if mark.watermark != stored:
            # Rows without a watermark are not this table's: the first commit removes them.
            if not data.advance(stored, mark.watermark, changes, replace=stored is None):
                # Another process took these events in.
                (stored, mark), pending = _begin(ledger, table), 0
                continue
            stored, count, pending = mark.watermark, count + pending, 0
            if progress is not None:
                progress(count)
        if not page:
            return count


def _begin(ledger: Ledger, table: Table[Any]) -> tuple[Watermark | None, TableMark]:
    """The stored watermark and the mark to go on from; rebuilds a table of an older meaning."""
    data, meaning = data_of(ledger, table), fingerprint(table)
    while True:
        stored = data.watermark()
        if stored is None:
            return None, TableMark(meaning)
        mark = TableMark.of(stored, table.name)
        if stored.fingerprint == meaning:
            return stored, mark
        if version_of(stored) > table.version:
            check_made(table, stored)
        with suppress(RebuildOvertakenError):
            rebuild(ledger, table)


def _no_rows(keys: Sequence[str]) -> Mapping[str, str]:
    return {}
