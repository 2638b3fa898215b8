"""Blame: the event that last changed the value that a JSON Pointer names in a state, or all.

It goes back from the end, page by page, and compares values only where they may have changed.
The states before the pages are from a fold of the whole run, or from moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from turnledger.ledger import InvalidInputError, Ledger, Record, RecordNotFoundError
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.persistent.lazy_json import MISSING, resolve, unchanged
from turnledger.projections.projection import PAGE, Projection, tags_read
from turnledger.projections.run_state.changes import moments_of
from turnledger.projections.run_state.json_diff import changes
from turnledger.projections.run_state.moments import EVERY, FoldCancelledError, Moments
from turnledger.projections.run_state.state import RunState, view_of
from turnledger.projections.run_state.state_json import view_pointed_at
from turnledger.projections.session.declarations import Declarations


class _Page(NamedTuple):
    """A page of records, by their versions, and the state before it."""

    after: int
    until: int
    before: Any


@explain_arguments
def blame(
    ledger: Ledger,
    run_id: RunId,
    pointer: str,
    *,
    at: int | None = None,
    moments: Moments | None = None,
    declarations: Declarations | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Record:
    """The event that last set the value that a JSON Pointer names ("/usage/total/calls").

    It goes back from the end until it has found it; without moments it reads the run before. For
    a gap of the timeline all gaps are worked out for each event on its way.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        pointer: A JSON Pointer into the state, which begins with the name of a view.
        at: The version of the state; by default the last.
        moments: Where states on its way are from; without, one view is folded from the beginning.
        declarations: Types and reducers of the program's slices; without, slices are plain JSON.
            Moments have their own.
        cancelled: Asked before each page of events; if it is true, the search ends.
    """
    projection, within = view_pointed_at(pointer, declarations)
    if moments is None:
        pages = _folded_pages(ledger, run_id, projection, at, cancelled)
    else:
        last = moments_of(ledger, moments, declarations).at(run_id, at, cancelled=cancelled)
        projection, _ = view_of(last, projection.name)
        pages = _known_pages(run_id, projection, last, moments, cancelled)
    found = _Search(ledger, run_id, projection, within).last_change(pages)
    if found is None:
        raise InvalidInputError(f"{pointer!r} names nothing in the state of run {run_id}.")
    return found


def _folded_pages(
    ledger: Ledger,
    run_id: RunId,
    projection: Projection[Any],
    at: int | None,
    cancelled: Callable[[], bool] | None,
) -> Iterator[_Page]:
    """The run in pages from the last one on, without those that have no event of the view."""
    tags = tags_read(projection)
    pages: list[_Page] = []
    state, version = projection.initial(), 0
    records = ledger.read(run_id, until=at)
    while page := list(islice(records, PAGE)):
        if cancelled is not None and cancelled():
            raise FoldCancelledError(str(run_id), at or ledger.head(run_id), version)
        after, version = version, page[-1].version
        read = [record for record in page if record.tag in tags]
        if read:
            pages.append(_Page(after, version, state))
            state = projection.apply_all(state, read)
    if at is not None and version != at:
        raise RecordNotFoundError(str(run_id), at, ledger.head(run_id))
    return iter(pages[::-1])


def _known_pages(
    run_id: RunId,
    projection: Projection[Any],
    last: RunState,
    moments: Moments,
    cancelled: Callable[[], bool] | None,
) -> Iterator[_Page]:
    """The same, with states from moments."""
    until = last.version
    while until:
        after = (until - 1) // EVERY * EVERY
        before = moments.at(run_id, after, cancelled=cancelled)
        yield _Page(after, until, view_of(before, projection.name)[1])
        until = after


class ValueChange(NamedTuple):
    """An event that changed a value, and the value before and after it, as lazy JSON.

    MISSING if there was none.
    """

    record: Record
    was: Any
    value: Any


@explain_arguments
def value_changes(
    ledger: Ledger,
    run_id: RunId,
    pointer: str,
    *,
    moments: Moments,
    before: int | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Iterator[ValueChange | int]:
    """The events that changed the value at a JSON Pointer, or below it, newest first.

    Between them come numbers: no event at or above that version is left to be looked at.

    Args:
        ledger: The ledger that has the run.
        run_id: The run.
        pointer: A JSON Pointer into the state, which begins with the name of a view.
        moments: Where states on its way are from.
        before: Only events with a lower version; by default all.
        cancelled: Asked before each page of events; if it is true, the search ends.
    """
    view, within = view_pointed_at(pointer, None)
    head = ledger.head(run_id)
    end = head if before is None else min(max(before - 1, 0), head)
    last = moments_of(ledger, moments, None).at(run_id, end, cancelled=cancelled)
    projection, _ = view_of(last, view.name)
    search = _Search(ledger, run_id, projection, within)
    for page in _known_pages(run_id, projection, last, moments, cancelled):
        yield from search.changes(page)
        yield page.after + 1


class _Search:
    """The search back through a run."""

    def __init__(
        self, ledger: Ledger, run_id: RunId, projection: Projection[Any], within: Sequence[str]
    ) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._projection = projection
        self._within = within

    def last_change(self, pages: Iterable[_Page]) -> Record | None:
        """The record that set the value; None if there is no such value at the end.

        Args:
            pages: The pages of the run, the last one first.
        """
        earliest: Record | None = None
        for page in pages:
            records = self._records(page)
            states = self._states(page, records)
            if records and earliest is None and self._value(states[-1]) is MISSING:
                return None
            changed = next(self._changes(records, states), None)
            if changed is not None:
                return changed.record
            earliest = records[0] if records else earliest
        # It was there before the first event, and is blamed on that.
        return earliest

    def changes(self, page: _Page) -> Iterator[ValueChange]:
        """The changes of a page, the last one first."""
        records = self._records(page)
        return self._changes(records, self._states(page, records))

    def _changes(self, records: Sequence[Record], states: Sequence[Any]) -> Iterator[ValueChange]:
        for place in range(len(records) - 1, -1, -1):
            before, then = states[place], states[place + 1]
            if self._is_unchanged(before, then):
                continue
            was, value = self._value(before), self._value(then)
            if was is MISSING or value is MISSING:
                is_same = was is value
            else:
                is_same = next(changes(was, value), None) is None
            if not is_same:
                yield ValueChange(records[place], was, value)

    def _states(self, page: _Page, records: Sequence[Record]) -> list[Any]:
        """The state before a page, and after each record of it."""
        return list(accumulate(records, self._projection.apply, initial=page.before))

    def _records(self, page: _Page) -> list[Record]:
        tags = tags_read(self._projection)
        records = self._ledger.read(self._run_id, page.after, page.until)
        return [record for record in records if record.tag in tags]

    def _is_unchanged(self, before: Any, then: Any) -> bool:
        lazy_json = self._projection.lazy_json
        return unchanged(lazy_json(before), lazy_json(then), self._within)

    def _value(self, state: Any) -> Any:
        """The value as lazy JSON, or MISSING."""
        return resolve(self._projection.lazy_json(state), self._within)
