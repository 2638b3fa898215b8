"""Ledgers of many runs, filled fast: valid runs with ids, digests and index, written in bulk.

Digests and rows of the index are made by the functions that an append uses. Only what changes
nothing here is left out: a transaction for each run, and encoding the same events again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psycopg
import uuid_utils
from msgspec.structs import replace
from psycopg.sql import SQL, Identifier

from benchmarks.raw_sqlite import INSERT
from benchmarks.workload import DIGEST, EVALUATION, WHEN, one_turn, run_of
from turnledger.ledger import Codec, EvaluationStarted, Event, Ledger, RunCompleted, RunStarted
from turnledger.ledger.clock import to_micros
from turnledger.ledger.events.chain import linker
from turnledger.ledger.runs.index import INDEXED_TAGS, RunRow, advance
from turnledger.ledger.runs.record import NewColumns
from turnledger.ledger.stores.postgres.schema import FIRST_POSITION, ORDINAL_BITS
from turnledger.ledger.stores.sql import ROW, RUN, run_values

# Events of a run; how many agents and prompts there are, and how many runs a customer has.
EVENTS = 100
AGENTS, PROMPTS, OF_A_CUSTOMER = 2, 20, 10
# Every so many runs one has ended; the others have a call whose outcome is unknown.
ENDED = 10
OPEN_CALL = "call_open"
# Runs of a transaction: on PostgreSQL it can number so many events.
TOGETHER = 2**ORDINAL_BITS // EVENTS
MICROS_APART = 1_000


class Encoded(NamedTuple):
    event: Event
    tag: str
    data: bytes
    text: str


class Made(NamedTuple):
    """A run: its row in the index, and its events."""

    row: RunRow
    events: list[NewColumns]


def customer(number: int) -> str:
    """The customer of a run: few runs have the same, however many there are."""
    return f"c{number // OF_A_CUSTOMER}"


def _encoded(event: Event) -> Encoded:
    tag, data = Codec().encode(event)
    return Encoded(event, tag, data, data.decode())


def _start(number: int) -> Encoded:
    return _encoded(
        RunStarted(
            request_type="Reconcile",
            agent=f"clerk-{number % AGENTS}",
            tags={"customer": customer(number)},
        )
    )


@cache
def _rest(prompt: int, ended: bool) -> list[Encoded]:
    """All but the first event, which runs of a kind have in common."""
    evaluation = EvaluationStarted(
        evaluation_id=EVALUATION,
        prompt_ns="billing",
        prompt_key=f"reconcile-{prompt}",
        prompt_digest=DIGEST,
    )
    *turn, started = one_turn(EVENTS)[:4]
    end = [RunCompleted()] if ended else [*turn, replace(started, call_id=OPEN_CALL)]
    between = islice(run_of(EVENTS), 1, EVENTS - 1 - len(end))
    return [_encoded(event) for event in (evaluation, *between, *end)]


def made_runs(count: int) -> Iterator[Made]:
    """So many runs, one after another."""
    new_id, moment = uuid_utils.uuid7, to_micros(WHEN)
    for number in range(count):
        moment += MICROS_APART
        run_id, version, rows = str(new_id()), 0, []
        begun = RunRow(run_id)
        digest, link = begun.digest, linker(run_id, moment)
        events = [_start(number), *_rest(number % PROMPTS, number % ENDED == 0)]
        for _, tag, data, text in events:
            version += 1
            event_id = str(new_id())
            digest = link(digest, version, event_id, tag, data)
            rows.append((run_id, version, tag, event_id, moment, digest, text))
        indexed = [one.event for one in events if one.tag in INDEXED_TAGS]
        yield Made(advance(begun, indexed, version, digest, moment), rows)


def fill_sqlite(path: Path, events: int) -> list[str]:
    """Make a ledger with so many events; the ids of its runs, oldest first."""
    Ledger.open(path).close()
    runs, made = [], made_runs(events // EVENTS)
    into_runs = f"INSERT INTO runs ({RUN}) VALUES ({', '.join('?' * len(RUN.split(', ')))})"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        while some := list(islice(made, TOGETHER)):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(INSERT, (row for run in some for row in run.events))
            db.executemany(into_runs, (run_values(run.row) for run in some))
            db.executemany("INSERT INTO run_tags VALUES (?, ?, ?)", _tags(some))
            db.execute("COMMIT")
            runs += [run.row.run_id for run in some]
    return runs


def fill_postgres(server: str, schema: str, events: int) -> list[str]:
    """Make a ledger in a schema of a database, by COPY; the ids of its runs, oldest first."""
    Ledger.open(f"{server}&schema={schema}").close()
    runs, made = [], made_runs(events // EVENTS)
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(SQL("SET search_path = {}").format(Identifier(schema)))
        while some := list(islice(made, TOGETHER)):
            with db.transaction():
                _copy(db, some)
            runs += [run.row.run_id for run in some]
        db.execute("VACUUM (ANALYZE) events, runs, run_tags")
    return runs


def _copy(db: psycopg.Connection, some: list[Made]) -> None:
    found = db.execute(f"SELECT {FIRST_POSITION}").fetchone()
    assert found is not None
    (position,) = found
    lasts = []
    with db.cursor() as cursor:
        with cursor.copy(f"COPY events ({ROW}) FROM STDIN") as copy:
            for run in some:
                for row in run.events:
                    copy.write_row((position, *row))
                    position += 1
                lasts.append(position - 1)
        with cursor.copy(f"COPY runs ({RUN}, position) FROM STDIN") as copy:
            for run, last in zip(some, lasts, strict=True):
                copy.write_row((*run_values(run.row), last))
        with cursor.copy("COPY run_tags FROM STDIN") as copy:
            for tag in _tags(some):
                copy.write_row(tag)


def _tags(some: list[Made]) -> Iterator[tuple[str, str, str]]:
    for run in some:
        for key, value in run.row.tag_map.items():
            yield key, value, run.row.run_id
