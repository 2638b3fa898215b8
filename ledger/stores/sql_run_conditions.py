"""The WHERE of a listing of runs, the same for every SQL store."""

from __future__ import annotations

from typing import Any

from turnledger.ledger.stores.base import RunQuery


def run_conditions(query: RunQuery, mark: str) -> tuple[str, list[Any]]:
    """The condition and its values; `mark` is the driver's placeholder."""
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
