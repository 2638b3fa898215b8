"""What meaning costs: folds against bare reading, and long runs against short ones."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import msgspec

from benchmarks.measuring import Result, speed
from benchmarks.workload import conversation, run_of
from turnledger.ledger import ANY, Event, Ledger, Record, new_run_id
from turnledger.ledger.events.types import EVENT_TYPES
from turnledger.ledger.stores.sql import ROW
from turnledger.projections import fold, state_at
from turnledger.projections.views.conversation import Conversation

LONG = 100_000
MESSAGES = 5_000
COMMIT = 3
EARLY, LATE, STEPS = 50, 50_000, 70


def measure(folder: Path) -> Iterator[Result]:
    path = folder / "fold.db"
    with Ledger.open(path) as ledger:
        long = _written(ledger, run_of(LONG))
        raw = _raw(path, long)
        ratio = speed(lambda: state_at(ledger, long), raw, rounds=5)
        yield Result("cold fold of all views, 100,000 events", ratio, 0.4, at_least=True)
        talk = _written(ledger, conversation(MESSAGES))
        ratio = speed(lambda: _loaded(ledger, talk), _raw(path, talk), rounds=15)
        name = "load a 5,000-message conversation, times raw"
        yield Result(name, 1 / ratio, 2.5, at_least=False)
        yield _one_step(ledger, long)


def _written(ledger: Ledger, events: Iterator[Event]) -> UUID:
    """In commits of a few events, like a loop's: the events of one share their time."""
    run, batch = new_run_id(), list(events)
    for start in range(0, len(batch), COMMIT):
        ledger.append(run, batch[start : start + COMMIT], ANY)
    return run


def _raw(path: Path, run: UUID) -> Callable[[], None]:
    """SELECT of the same columns, and msgspec."""
    db = sqlite3.connect(path, isolation_level=None)
    decoders = {tag: msgspec.json.Decoder(kind) for tag, kind in EVENT_TYPES.items()}
    statement = f"SELECT {ROW} FROM events WHERE run_id=? ORDER BY version"

    def read() -> None:
        for row in db.execute(statement, (str(run),)):
            decoders[row[3]].decode(row[7])

    return read


def _loaded(ledger: Ledger, run: UUID) -> None:
    assert len(fold(ledger.read(run), Conversation()).history().for_send()) == MESSAGES - 1


def _one_step(ledger: Ledger, run: UUID) -> Result:
    """All views and their digest, event by event, in turns early and late in the run."""
    early, late = (_Stepping(ledger, run, at) for at in (EARLY, LATE))
    ratios = []
    for _ in range(15):
        first, second = early.seconds(), late.seconds()
        ratios.append(second / first)
    name = "a step of all views and its digest, event 50,000 against 50"
    return Result(name, statistics.median(ratios), 1.2, at_least=False)


class _Stepping:
    """A run folded up to an event, and the same events after it folded again and again."""

    def __init__(self, ledger: Ledger, run: UUID, at: int) -> None:
        self._before = state_at(ledger, run, at)
        self._records: list[Record] = list(ledger.read(run, after=at, until=at + STEPS))
        for record in self._records:
            record.event  # noqa: B018
        self._before.state_digest  # noqa: B018

    def seconds(self) -> float:
        state = self._before
        started = time.perf_counter()
        for record in self._records:
            state = state.after((record,))
            state.state_digest  # noqa: B018
        return time.perf_counter() - started
