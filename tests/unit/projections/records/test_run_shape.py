"""The shape of a run: one character an event, extended as the run grows."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.samples import note
from tests.unit.projections.given import (
    calls_model,
    completes,
    doubts,
    evaluation,
    fails,
    replies,
    said,
    starts,
)
from tests.unit.projections.random_runs import small_world
from turnledger.ledger import (
    ANY,
    NEW,
    Event,
    InvalidInputError,
    Ledger,
    Record,
    RunCompleted,
    RunNotFoundError,
    RunResumed,
    RunStarted,
    new_run_id,
)
from turnledger.ledger.runs.record import Columns
from turnledger.projections import SHAPE_CHARACTERS, Shapes, shape


def record(ledger: Ledger, *events: Event) -> UUID:
    run = new_run_id()
    ledger.append(run, [RunStarted(), *events], NEW)
    return run


def test_every_event_has_one_character() -> None:
    """Each type of the union is in the table once, and no character stands twice."""
    kinds = [kind for entry in SHAPE_CHARACTERS for kind in entry.events]
    assert sorted(kinds, key=str) == sorted(get_args(Event), key=str)
    characters = "".join(entry.character for entry in SHAPE_CHARACTERS)
    assert len(characters) == len(set(characters)) == len(SHAPE_CHARACTERS)


def test_a_shape_shows_kinds_failures_doubts_and_resumes(ledger: Ledger) -> None:
    """The character of a version is at its place, and a capital letter is a failure."""
    run = record(
        ledger,
        evaluation(),
        said("user", "Hi", 1),
        calls_model(),
        replies(),
        starts("c1"),
        fails("c1"),
        starts("c2"),
        RunResumed(attempt=1, from_version=8),
        doubts("c2"),
        completes("c2"),
        note(),
        RunCompleted(),
    )
    found = shape(ledger, run)
    assert found.text == "^ecmrtTt+?du$"
    assert found.version == ledger.head(run)
    assert found.digest == ledger.record(run, found.version).digest


def test_retired_and_unknown_tags_have_a_character(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retired tag has its successor's; what a later program wrote is a dot, and not an error."""
    run = record(ledger, note(), note())
    rows = ledger.store.rows(str(run), 0, None, backwards=False, limit=9)
    tags = iter(["run.started", "message.recorded", "run.teleported"])
    changed: list[Columns] = [(*row[:3], next(tags), *row[4:]) for row in rows]
    monkeypatch.setattr(ledger.store, "rows", lambda *_, **__: changed)
    assert shape(ledger, run).text == "^c."


@settings(max_examples=40)
@given(
    events=st.lists(small_world, max_size=25),
    cuts=st.lists(st.integers(1, 5), max_size=12),
    fork=st.booleans(),
)
def test_a_shape_that_is_extended_is_the_one_that_is_rebuilt(
    events: list[Event], cuts: list[int], fork: bool
) -> None:
    """After any appends, in a run and in its fork, whichever shape it goes on from."""
    with Ledger.open("memory://") as ledger:
        run = record(ledger)
        shapes, known = Shapes(ledger), [shape(ledger, run)]
        for size in cuts:
            batch, events = events[:size], events[size:]
            if batch:
                ledger.append(run, batch, ANY)
            found = shape(ledger, run, known[len(known) // 2])
            assert found == shape(ledger, run) == shape(ledger, run, known[-1]) == shapes.of(run)
            known.append(found)
        assert known[-1].version == ledger.head(run)
        if fork:
            child = ledger.fork(run, ledger.head(run))
            begun = shape(ledger, child)
            ledger.append(child, [note(), *events], ANY)
            found = shape(ledger, child, begun)
            assert found == shape(ledger, child) == shapes.of(child)
            assert found.text.startswith(f"{known[-1].text}^u")


def test_only_what_was_appended_is_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a known shape, its last record and those after it; no payload is ever decoded."""
    run = record(ledger, *(note() for _ in range(50)))
    known = shape(ledger, run)
    ledger.append(run, [note(), note()], ANY)
    read: list[int] = []
    rows = ledger.store.rows

    def counted(*args: int, **named: int) -> list[Columns]:
        found = rows(*args, **named)  # type: ignore[arg-type]
        read.extend(row[2] for row in found)
        return found

    def decoded(self: Record) -> Event:
        raise AssertionError("decoded")

    monkeypatch.setattr(ledger.store, "rows", counted)
    monkeypatch.setattr(Record, "event", property(decoded))
    assert shape(ledger, run, known).version == 53
    assert read == [51, 52, 53]


def test_a_shape_of_other_events_is_not_extended(ledger: Ledger) -> None:
    """A run that does not begin with the known events is read again; another run is an error."""
    run, other = record(ledger, note()), record(ledger, starts(), completes())
    known = shape(ledger, run)
    from_backup = type(known)(known.run_id, "^ttt", known.digest)
    assert shape(ledger, run, from_backup) == known
    assert shape(ledger, run, type(known)(known.run_id, "^t", "00")) == known
    with pytest.raises(InvalidInputError, match=str(other)):
        shape(ledger, other, known)
    with pytest.raises(RunNotFoundError):
        shape(ledger, new_run_id())


def test_the_cache_is_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that were asked for last stay; others are read again."""
    runs = [record(ledger, note()) for _ in range(4)]
    shapes = Shapes(ledger, max_bytes=1200)
    for run in (*runs[:2], runs[0], runs[2]):
        shapes.of(run)
    begun: list[UUID] = []
    read = ledger.read

    def counted(run: UUID, after: int = 0) -> Iterator[Record]:
        begun.extend([] if after else [UUID(str(run))])
        return read(run, after)

    monkeypatch.setattr(ledger, "read", counted)
    for run in (runs[2], runs[0], runs[1]):
        shapes.of(run)
    assert begun == [runs[1]]


def test_many_readers_share_a_cache_while_runs_grow() -> None:
    """Each answer is the shape at a version between the run's head before and after."""
    with Ledger.open("memory://") as ledger:
        runs = [record(ledger) for _ in range(3)]
        shapes, wrong = Shapes(ledger, max_bytes=1300), list[str]()

        def read() -> None:
            for turn in range(60):
                run = runs[turn % 3]
                low = ledger.head(run)
                found = shapes.of(run)
                if not low <= found.version <= ledger.head(run) or found.text.strip("u") != "^":
                    wrong.append(found.text)

        def write() -> None:
            for turn in range(60):
                ledger.append(runs[turn % 3], note(), ANY)

        threads = [Thread(target=read) for _ in range(4)] + [Thread(target=write)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert [shapes.of(run).version for run in runs] == [21, 21, 21]
