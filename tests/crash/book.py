"""What the driver knows that the ledger must hold, and the check that it does.

Every attempt is announced before it is made and acknowledged after it came back, so
at any moment the driver knows which events must be there, which must not, and of
which the outcome is unknown.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from uuid import UUID, uuid5

from tests.crash.attempts import Attempt
from tests.crash.processes import Message
from turnledger.ledger import Event, Ledger, Record, RunStarted
from turnledger.ledger.events.blobs import blobs_named
from turnledger.ledger.integrity.verify import every_run


@dataclass
class Slot:
    """One of the places at which a worker works, killed and replaced again and again."""

    number: int
    # How many threads of the worker share its ledger.
    threads: int = 1
    generation: int = 0
    # What was begun and is not known to have ended, by its first id.
    attempts: dict[str, Message] = field(default_factory=dict)
    # Those of them that only predecessors announced.
    inherited: set[str] = field(default_factory=set)
    claims: list[str] = field(default_factory=list)
    # Where in the ledger's code the worker is, if it said so last.
    amid: str = ""

    @property
    def worker(self) -> str:
        return f"worker-{self.number}-{self.generation}"

    @property
    def attempt(self) -> Message | None:
        """The attempt of a worker that has one thread."""
        return next(iter(self.attempts.values()), None)

    @property
    def on_their_way(self) -> list[Message]:
        """What this worker itself has begun."""
        return [self.attempts[first] for first in self.attempts.keys() - self.inherited]

    def announce(self, first: str, attempt: Message) -> None:
        self.attempts[first] = attempt
        self.inherited.discard(first)


@dataclass
class Book:
    """Everything that workers said."""

    tried: dict[str, Attempt] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    forks: dict[str, tuple[str, int]] = field(default_factory=dict)
    forked: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    figures: Counter[str] = field(default_factory=Counter)

    def note(self, slot: Slot, message: Message) -> None:
        slot.amid = ""
        match message:
            case ["trying", kind, run, first, count, _, _]:
                slot.announce(first, message)
                self.tried[first] = Attempt(kind, run, first, count)
            case ["recorded", first, version, duplicate]:
                self._acknowledge(slot, first, version, duplicate)
            case ["refused", first]:
                self.refused.add(first)
                del slot.attempts[first]
                self.figures["refused"] += self.tried[first].count
            case ["forking", child, parent, at]:
                slot.announce(child, message)
                self.forks[child] = (parent, at)
            case ["forked", child]:
                self.forked.add(child)
                del slot.attempts[child]
                self.figures["forks"] += 1
            case ["claiming", run]:
                slot.claims.append(run)
            case ["claimed", _]:
                self.figures["claims"] += 1
            case ["unclaimed" | "released", run]:
                slot.claims.remove(run)
            case ["amid", what]:
                slot.amid = what
            case ["counted", what]:
                self.figures[what] += 1
            case _:
                raise ValueError(f"{slot.worker} said {message}")

    def _acknowledge(self, slot: Slot, first: str, version: int, duplicate: bool) -> None:
        attempt = self.tried[first]
        del slot.attempts[first]
        before = self.acknowledged.get(first)
        if before is not None:
            # Recorded again on purpose: found where it was, and not one event more.
            if not duplicate or before != version:
                raise ValueError(f"{attempt} was recorded at {before}, and again at {version}")
            self.figures["repeats found"] += 1
            return
        self.acknowledged[first] = version
        self.figures["found recorded"] += duplicate
        self.figures["acknowledged"] += attempt.count
        self.figures["appends"] += 1
        self.figures["appends of one event"] += attempt.count == 1
        self.figures["imports"] += attempt.kind == "import"
        self.figures["appends with blobs"] += attempt.kind == "files"


def problems(url: str, book: Book) -> list[str]:
    """What in the ledger is not as it was acknowledged; nothing, if all is well."""
    with Ledger.open(url) as ledger:
        records = list(ledger.tail())
        found = list(_misplaced(records, book))
        found += _strange(records, book)
        found += _gaps(records)
        found += _blobs(ledger, records)
        report = ledger.verify_all()
        found += [f"verify_all: {problem}" for problem in report.problems]
        if report.records != len(records):
            found.append(f"verify_all read {report.records} records, tail {len(records)}")
        index = {row.run_id: row for row in every_run(ledger.store)}
        ledger.rebuild_index()
        rebuilt = {row.run_id: row for row in every_run(ledger.store)}
        found += [
            f"index of {run}: {index.get(run)}, rebuilt: {rebuilt.get(run)}"
            for run in index.keys() | rebuilt.keys()
            if index.get(run) != rebuilt.get(run)
        ]
    return found + unsound(url)


def unsound(url: str) -> list[str]:
    """What SQLite itself says of its file; PostgreSQL has nothing to ask."""
    if "://" in url:
        return []
    with closing(sqlite3.connect(url)) as db:
        answers = [row[0] for row in db.execute("PRAGMA integrity_check")]
    return [] if answers == ["ok"] else [f"integrity_check: {answer}" for answer in answers]


def _misplaced(records: list[Record], book: Book) -> Iterator[str]:
    """Every attempt: there or not, as was said of it; whole; once; with its content."""
    by_id: dict[str, Record] = {}
    for record in records:
        if record.row.event_id in by_id:
            yield f"doubled: event {record.row.event_id}"
        by_id[record.row.event_id] = record
    for first, attempt in book.tried.items():
        there = [by_id[event_id] for event_id in attempt.ids if event_id in by_id]
        if not there:
            if first in book.acknowledged:
                yield f"lost: {attempt}, acknowledged at {book.acknowledged[first]}"
            continue
        if len(there) < attempt.count:
            yield f"torn: {attempt} was recorded in part, {len(there)} events"
            continue
        if first in book.refused:
            yield f"recorded although refused: {attempt}"
        version = book.acknowledged.get(first, there[0].version)
        for place, (record, event) in enumerate(zip(there, attempt.events, strict=True)):
            if (record.row.run_id, record.version) != (attempt.run, version + place):
                yield f"moved: {record!r} of {attempt} should be at {version + place}"
            if record.event != event:
                yield f"changed: {record!r} of {attempt} says {record.data[:200]}"
    for child in book.forked:
        if _fork_id(child) not in by_id:
            yield f"lost: fork {child} at {book.forks[child]}"


def _strange(records: list[Record], book: Book) -> Iterator[str]:
    """Events that nobody tried to record."""
    known = {event_id for attempt in book.tried.values() for event_id in attempt.ids}
    forks = {_fork_id(child): origin for child, origin in book.forks.items()}
    for record in records:
        if record.row.event_id in known or record.tag == "run.claimed":
            continue
        event: Event = record.event
        is_fork = isinstance(event, RunStarted) and event.parent is not None
        origin = (str(event.parent), event.at) if isinstance(event, RunStarted) else None
        if not is_fork or forks.get(record.row.event_id) != origin:
            yield f"strange: {record!r}, {record.data[:200]}"


def _fork_id(child: str) -> str:
    return str(uuid5(UUID(child), RunStarted.tag))


def _gaps(records: list[Record]) -> Iterator[str]:
    position = 0
    for record in records:
        if record.position <= position:
            yield f"disorder: position {record.position} after {position}"
        position = record.position
    # Sorting keeps the order of arrival within a run.
    for run, own in groupby(
        sorted(records, key=lambda one: one.row.run_id), lambda one: one.row.run_id
    ):
        version: int | None = None
        for record in own:
            if version is None:
                event = record.event
                version = event.at if isinstance(event, RunStarted) else 0
            if record.version != version + 1:
                yield f"gap: {record!r} of {run} after version {version}"
            version = record.version


def _blobs(ledger: Ledger, records: list[Record]) -> Iterator[str]:
    """Bytes are there if and only if an event names them; verify_all looks into them."""
    named = {name for record in records for name in blobs_named(record.event)}
    kept = set(ledger.store.blob_names())
    yield from (f"lost: blob {name}" for name in named - kept)
    yield from (f"strange: blob {name}, which nothing names" for name in kept - named)
