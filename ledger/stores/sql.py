"""SQL that the SQL stores share: the table `meta`, derived data, listings of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnledger.ledger.errors import IntegrityFailureError
from turnledger.ledger.runs.transaction import Watermark
from turnledger.ledger.stores.base import RunQuery
from turnledger.ledger.stores.derived_data import DerivedReader

# Watermarks are in the table `shelves`, rows in `shelf_rows`. Their column `generation` is
# always 0: what an older version wrote under other numbers is ignored, and made again.
WATERMARK = "fingerprint, position, state"
PLAIN = "generation = 0"


def catalogue_number(value: Any) -> int:
    """The event catalogue in the table `meta`; IntegrityFailureError if that was changed."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    raise IntegrityFailureError(
        f"Invalid event catalogue {value!r:.80} in the table meta: expected a number. The table "
        "was changed or is damaged. Go on from an export or a backup."
    )


class SQLDerivedReader(DerivedReader):
    """Derived data in a SQL database; `query` takes a statement with `?` for each value."""

    def __init__(self, query: Callable[[str, Sequence[Any]], list[Any]]) -> None:
        self._query = query

    def watermarks(self) -> dict[str, Watermark]:
        found = self._query(f"SELECT name, {WATERMARK} FROM shelves WHERE {PLAIN}", ())
        return {name: Watermark(*rest) for name, *rest in sorted(found)}

    def watermark(self, name: str) -> Watermark | None:
        found = self._query(f"SELECT {WATERMARK} FROM shelves WHERE {PLAIN} AND name = ?", (name,))
        return Watermark(*found[0]) if found else None

    def get(self, name: str, keys: Sequence[str]) -> dict[str, str]:
        marks = ", ".join("?" * len(keys))
        return dict(
            self._query(
                "SELECT key, value FROM shelf_rows "
                f"WHERE shelf = ? AND {PLAIN} AND key IN ({marks})",
                (name, *keys),
            )
        )

    def page(self, name: str, after: str, limit: int) -> list[tuple[str, str]]:
        return self._query(
            "SELECT key, value FROM shelf_rows "
            f"WHERE shelf = ? AND {PLAIN} AND key > ? ORDER BY key LIMIT ?",
            (name, after, limit),
        )


def run_conditions(query: RunQuery, mark: str) -> tuple[str, list[Any]]:
    """The WHERE of a listing of runs and its values; `mark` is the driver's placeholder."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *bound: Any) -> None:
        conditions.append(condition.replace("?", mark))
        values.extend(bound)

    if query.status is not None:
        add("status = ?", query.status)
    if query.prompt is not None:
        add("prompt = ?", query.prompt)
    if query.since is not None:
        add("started_at >= ?", query.since)
    if query.until is not None:
        add("started_at < ?", query.until)
    if query.before is not None:
        add("(started_at, run_id) < (?, ?)", *query.before)
    for key, value in query.tags:
        if value is None:
            add("run_id IN (SELECT run_id FROM run_tags WHERE key = ?)", key)
        else:
            add("run_id IN (SELECT run_id FROM run_tags WHERE key = ? AND value = ?)", key, value)
    return (f"WHERE {' AND '.join(conditions)}" if conditions else ""), values
