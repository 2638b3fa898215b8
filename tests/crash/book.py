"""What the driver knows that the ledger must hold, and the check that it does.

Every attempt is announced before it is made and acknowledged after it came back, so
at any moment the driver knows which events must be there, which must not, and of
which the outcome is unknown.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ledger import Ledger, Record
from ledger.verifying import every_run
from tests.crash.processes import Message


@dataclass
class Slot:
    """One of the places at which a worker works, killed and replaced again and again."""

    number: int
    generation: int = 0
    attempt: Message | None = None
    claims: list[str] = field(default_factory=list)

    @property
    def worker(self) -> str:
        return f"worker-{self.number}-{self.generation}"


@dataclass
class Book:
    """Everything that workers said."""

    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    forks: dict[str, int] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    figures: Counter[str] = field(default_factory=Counter)

    def note(self, slot: Slot, message: Message) -> None:
        match message:
            case ["trying", kind, run, ids, expected, epoch]:
                slot.attempt = [kind, run, ids, expected, epoch]
                if len(ids) > 1:
                    self.batches.append(ids)
            case ["recorded", run, ids, version, duplicate]:
                for place, event_id in enumerate(ids):
                    self.acknowledged[event_id] = (run, version + place)
                slot.attempt = None
                self.figures["acknowledged"] += len(ids)
                self.figures["appends"] += 1
                self.figures["found recorded"] += duplicate
            case ["refused", ids]:
                self.refused.update(ids)
                slot.attempt = None
                self.figures["refused"] += len(ids)
            case ["forking", child, parent, at]:
                slot.attempt = ["fork", child, parent, at]
            case ["forked", child, at]:
                self.forks[child] = at
                slot.attempt = None
                self.figures["forks"] += 1
            case ["claiming", run]:
                slot.claims.append(run)
            case ["claimed", _]:
                self.figures["claims"] += 1
            case ["unclaimed" | "released", run]:
                slot.claims.remove(run)
            case ["counted", what]:
                self.figures[what] += 1
            case _:
                raise ValueError(f"{slot.worker} said {message}")


def problems(url: str, book: Book) -> list[str]:
    """What in the ledger is not as it was acknowledged; nothing, if all is well."""
    with Ledger.open(url) as ledger:
        records = list(ledger.tail())
        found = _misplaced(records, book) + _gaps(records, book)
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


def _misplaced(records: list[Record], book: Book) -> list[str]:
    places: dict[str, tuple[str, int]] = {}
    found = []
    for record in records:
        event_id = str(record.event_id)
        if event_id in places:
            found.append(f"doubled: event {event_id}")
        places[event_id] = (str(record.run_id), record.version)
    for event_id, place in book.acknowledged.items():
        if event_id not in places:
            found.append(f"lost: event {event_id}, acknowledged at {place}")
        elif places[event_id] != place:
            found.append(f"moved: event {event_id} from {place} to {places[event_id]}")
    found += [f"recorded although refused: {i}" for i in book.refused if i in places]
    for ids in book.batches:
        if len({event_id in places for event_id in ids}) > 1:
            found.append(f"torn: a batch that holds {ids[0]} was recorded in part")
    return found


def _gaps(records: list[Record], book: Book) -> list[str]:
    found = []
    position = 0
    heads: dict[str, int] = {}
    for record in records:
        if record.position <= position:
            found.append(f"disorder: position {record.position} after {position}")
        position = record.position
        run = str(record.run_id)
        event: Any = record.event
        first = event.at if run not in heads and record.tag == "run.started" else 0
        if record.version != heads.get(run, first) + 1:
            found.append(f"gap: {record!r} after version {heads.get(run, first)}")
        heads[run] = record.version
    for child, at in book.forks.items():
        if heads.get(child, 0) <= at:
            found.append(f"lost: fork {child} at {at}")
    return found
