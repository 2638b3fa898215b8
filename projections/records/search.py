"""Search for text in the events of a run, or of all runs, newest first and in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec

from turnledger.ledger import IntegrityFailureError, Ledger, Record
from turnledger.ledger.arguments import check_arguments
from turnledger.ledger.clock import Clock
from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.ledger import LAST_POSITION
from turnledger.ledger.runs.append_request import RunId
from turnledger.projections.records.text_match import TextMatch

# Rows that are read from the store at a time: few, so that a time limit holds for large ones.
PAGE = 100


class Hit(msgspec.Struct, frozen=True):
    """An event that has the text, and one line around the first place where it has it.

    `run_id` is the run that holds the event: in a fork's shared part this is the ancestor.
    """

    run_id: str
    version: int
    position: int
    tag: str = msgspec.field(name="type")
    recorded_at: datetime
    excerpt: str


class UnreadableRecord(msgspec.Struct, frozen=True):
    """A record that may have the text and could not be searched: its payload is not JSON.

    Its run is damaged. A search is not a verification: it names only records that it had to read.
    """

    run_id: str
    version: int


class Found(msgspec.Struct, frozen=True):
    """A page of what was found, newest first.

    `next` is where the search stopped, to be given as `before` to go on: a version in `search`, a
    position in `search_all`. None means that all was searched.
    """

    hits: tuple[Hit, ...]
    next: int | None
    unreadable: tuple[UnreadableRecord, ...] = ()


@check_arguments
def search(
    ledger: Ledger,
    run_id: RunId,
    text: str,
    *,
    before: int | None = None,
    limit: int = 50,
    seconds: float | None = None,
) -> Found:
    """The events of a run that have a text in their tag or payload, newest first.

    It is searched as text, not as JSON: a quote, a line break or an umlaut is found however the
    JSON escapes it. Upper and lower case are the same, since people remember words and not how
    they were written. Keys of maps are searched (the path of a file), and names of events' fields
    are not; blobs are not.

    Args:
        ledger: The ledger that has the run.
        run_id: The run. Of a fork, the events that it shares with its parents are searched too.
        text: What to look for.
        before: Only events with a lower version than this: `next` of the page before.
        limit: How many events at most.
        seconds: How long to search at most, by the ledger's clock; at least one event is searched.
    """
    until = None if before is None else before - 1
    records = ledger.read(run_id, until=until, backwards=True, page_size=PAGE)
    return _page(ledger.clock, records, text, limit, seconds, _version)


@check_arguments
def search_all(
    ledger: Ledger,
    text: str,
    *,
    before: int | None = None,
    limit: int = 50,
    seconds: float = 5.0,
) -> Found:
    """The events of all runs that have a text in their tag or payload, newest first.

    Events that are committed while it searches may be left out.

    Args:
        ledger: The ledger.
        text: What to look for, as in `search`.
        before: Only events with a lower position than this: `next` of the page before.
        limit: How many events at most.
        seconds: How long to search at most, by the ledger's clock; at least one event is searched.
    """
    records = _all_before(ledger, LAST_POSITION if before is None else before)
    return _page(ledger.clock, records, text, limit, seconds, _position)


def _version(record: Record) -> int | None:
    return record.version if record.version > 1 else None


def _position(record: Record) -> int | None:
    return record.position


def _page(
    clock: Clock,
    records: Iterable[Record],
    text: str,
    limit: int,
    seconds: float | None,
    key: Callable[[Record], int | None],
) -> Found:
    """Search records until there are enough hits or the time is up.

    Args:
        clock: Tells whether the time is up.
        records: Those to search, newest first.
        text: What to look for.
        limit: How many hits at most.
        seconds: How long at most.
        key: Where a search goes on after a record.
    """
    if limit < 1:
        raise InvalidInputError(f"Invalid limit {limit}: expected 1 or more.")
    match = TextMatch(text)
    end = None if seconds is None else clock.micros() + seconds * 1e6
    hits: list[Hit] = []
    unreadable: list[UnreadableRecord] = []
    for record in records:
        try:
            hits.extend(_hits(match, record))
        except (IntegrityFailureError, ValueError):
            unreadable.append(UnreadableRecord(str(record.run_key), record.version))
        if len(hits) == limit or (end is not None and clock.micros() >= end):
            return Found(tuple(hits), key(record), tuple(unreadable))
    return Found(tuple(hits), None, tuple(unreadable))


def _hits(match: TextMatch, record: Record) -> Iterator[Hit]:
    position, run_id, version, tag, _, _, _, data = record.row
    excerpt = match.excerpt(tag, data)
    if excerpt is not None:
        yield Hit(run_id, version, position, tag, record.recorded_at, excerpt)


def _all_before(ledger: Ledger, before: int) -> Iterator[Record]:
    """The ledger's records with a lower position, the highest first."""
    while rows := ledger.store.rows_before(before, PAGE):
        for row in rows:
            yield Record(row, ledger.codec)
        reached = rows[-1][0]
        if not reached < before:  # else the same page would be read again and again
            raise IntegrityFailureError(
                "The ledger is damaged: positions are not in order. Run `turnledger verify`."
            )
        before = reached
