"""Blame: the event that last changed the value that a JSON Pointer names in a state.

It goes back from the end, page by page, and compares values only where they may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from turnledger.ledger import InvalidInputError, Ledger, Record, RecordNotFoundError
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.digests import canonical
from turnledger.projections.persistent.lazy_json import (
    MISSING,
    plain_json,
    resolve,
    unchanged,
)
from turnledger.projections.projection import PAGE, Projection, tags_read
from turnledger.projections.run_state.state_json import view_pointed_at
from turnledger.projections.session.declarations import Declarations


class _Page(NamedTuple):
    """A page of records: the states before and after it."""

    after: int
    until: int
    before: Any
    then: Any


@explain_arguments
def blame(
    ledger: Ledger,
    run_id: RunId,
    pointer: str,
    *,
    at: int | None = None,
    declarations: Declarations | None = None,
) -> Record:
    """The event that last set the value that a JSON Pointer names ("/usage/total/calls").

    It reads the run, and then goes back from the end until it has found it. For a gap of the
    timeline all gaps are worked out for each event on its way.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        pointer: A JSON Pointer into the state, which begins with the name of a view.
        at: The version of the state; by default the last.
        declarations: Types and reducers of the program's slices; without, slices are plain JSON.
    """
    projection, within = view_pointed_at(pointer, declarations)
    pages = _pages(ledger, run_id, projection, at)
    search = _Search(ledger, run_id, projection, within)
    found = search.last_change(pages) if pages else None
    if found is None:
        raise InvalidInputError(f"{pointer!r} names nothing in the state of run {run_id}.")
    return found


def _pages(
    ledger: Ledger, run_id: RunId, projection: Projection[Any], at: int | None
) -> list[_Page]:
    """The run in pages, without those that have no event of the view."""
    tags = tags_read(projection)
    pages: list[_Page] = []
    state, version = projection.initial(), 0
    records = ledger.read(run_id, until=at)
    while page := list(islice(records, PAGE)):
        after, version = version, page[-1].version
        read = [record for record in page if record.tag in tags]
        if read:
            before, state = state, projection.apply_all(state, read)
            pages.append(_Page(after, version, before, state))
    if at is not None and version != at:
        raise RecordNotFoundError(str(run_id), at, ledger.head(run_id))
    return pages


class _Search:
    """The search back through a run."""

    def __init__(
        self, ledger: Ledger, run_id: RunId, projection: Projection[Any], within: Sequence[str]
    ) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._projection = projection
        self._within = within

    def last_change(self, pages: list[_Page]) -> Record | None:
        """The record that set the value; None if there is no such value at the end."""
        value = self._value(pages[-1].then)
        if value is None:
            return None
        earliest: Record | None = None
        for page in reversed(pages):
            records = self._records(page)
            states = [page.before]
            for record in records:
                states.append(self._projection.apply(states[-1], record))
            for place in range(len(records) - 1, -1, -1):
                earliest = records[place]
                # A value that was there before the first event is blamed on that event.
                if page is pages[0] and place == 0:
                    break
                before, then = states[place], states[place + 1]
                if not self._is_unchanged(before, then) and self._value(before) != value:
                    return earliest
        return earliest

    def _records(self, page: _Page) -> list[Record]:
        tags = tags_read(self._projection)
        records = self._ledger.read(self._run_id, page.after, page.until)
        return [record for record in records if record.tag in tags]

    def _is_unchanged(self, before: Any, then: Any) -> bool:
        lazy_json = self._projection.lazy_json
        return unchanged(lazy_json(before), lazy_json(then), self._within)

    def _value(self, state: Any) -> bytes | None:
        """The value as canonical JSON; None if it is missing."""
        found = resolve(self._projection.lazy_json(state), self._within)
        return None if found is MISSING else canonical(plain_json(found))
