"""Tampering: whatever is changed in the stored rows, verify finds it and names the record.

Single bytes at random over every column but position (which an import may renumber),
rows deleted, swapped, inserted and moved, the index, the blobs. What a whole rewrite
with new digests does is for the seal to find, not for the chain.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.conformance.harness import (
    COLUMNS,
    NUMBERS,
    RUN_COLUMNS,
    STORES,
    RawRow,
    StoreUnderTest,
    Vandal,
    store_under_test,
)
from tests.conformance.samples import PICTURE, note, notes, one_of_each, started
from turnledger.ledger import (
    ANY,
    NEW,
    IntegrityFailureError,
    Ledger,
    Problem,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    Report,
    RunStarted,
    RunWaiting,
    TurnledgerError,
    blob_name,
    new_run_id,
    prompt_stream_id,
)
from turnledger.ledger.events.chain import link
from turnledger.ledger.events.types import EVENT_TYPES

# How many single-byte changes each store is put through; a round trip costs more on some.
CHANGES = {"memory": 2000, "sqlite": 2000, "postgres": 400}


class Crime:
    """A small ledger with every kind of event, forks and a blob, and a vandal at it."""

    def __init__(self, store: StoreUnderTest) -> None:
        self.ledger = store.open()
        self.vandal: Vandal = store.vandal
        self.runs = populate(self.ledger)
        self.rows = self.vandal.rows()
        assert self.ledger.verify_all().ok

    def restore(self) -> None:
        """Put every event back as it was."""
        for row in self.vandal.rows():
            self.vandal.delete(row.position)
        for row in self.rows:
            self.vandal.insert(row)

    def of(self, run: UUID) -> list[RawRow]:
        return [row for row in self.rows if row.run_id == str(run).encode()]


def populate(ledger: Ledger) -> dict[str, UUID]:
    full, plain, single = new_run_id(), new_run_id(), new_run_id()
    ledger.append(full, [started(), *one_of_each()], NEW, blobs=[PICTURE])
    with ledger.claim(full, worker="ann"):
        pass
    for number in range(3):
        ledger.append(plain, notes(2, number), ANY)
    fork = ledger.fork(plain, 4, tags={"why": "what if"})
    ledger.append(fork, notes(2), ANY)
    of_fork = ledger.fork(fork, 7)
    ledger.append(of_fork, [RunWaiting(reason="?"), note(5)], ANY)
    continuation = ledger.continuation(full)
    ledger.append(single, RunStarted(tags={"only": "one"}), NEW)
    prompt, name = prompt_stream_id("ns", "key"), {"prompt_ns": "ns", "prompt_key": "key"}
    ledger.append(prompt, PromptOverrideSet(**name, path="task", body="Do it.", replaces="d"), NEW)
    ledger.append(prompt, PromptTagMoved(**name, tag_name="stable", version=1), 1)
    ledger.append(prompt, PromptOverrideCleared(**name, path="task"), 2)
    return {
        "full": full,
        "plain": plain,
        "fork": fork,
        "of_fork": of_fork,
        "continuation": continuation,
        "single": single,
        "prompt": prompt,
    }


@pytest.fixture
def crime(store: StoreUnderTest) -> Crime:
    return Crime(store)


def names(report: Report, run_id: object, version: int, position: int | None = None) -> bool:
    """Whether a problem names the record, by its run and version or by its position."""
    wanted = run_id.decode() if isinstance(run_id, bytes) else str(run_id)
    return any(
        (p.run_id, p.version) == (wanted, version)
        or (position is not None and p.position == position)
        for p in report.problems
    )


def test_the_scene_holds_every_kind_of_event(crime: Crime) -> None:
    """Otherwise the changes below would miss some."""
    assert {row.tag.decode() for row in crime.rows} == set(EVENT_TYPES)
    assert len(crime.runs) == 7


# --- single bytes --------------------------------------------------------------------


def changed(value: Any, column: str, dice: random.Random) -> Any:
    """The value with one byte of it changed."""
    if column in NUMBERS:
        if dice.random() < 0.5:
            raw = bytearray(value.to_bytes(8, "big", signed=True))
            raw[dice.randrange(8)] ^= dice.randrange(1, 256)
            return int.from_bytes(raw, "big", signed=True)
        text = bytearray(str(value).encode())
        text[dice.randrange(len(text))] = dice.choice(b"0123456789 x-")
        try:
            return int(text)
        except ValueError:
            return text.decode()
    raw = bytearray(value)
    raw[dice.randrange(len(raw))] ^= dice.randrange(1, 256)
    return bytes(raw)


@pytest.mark.parametrize("name", STORES)
def test_every_single_byte_that_changes_is_found_and_named(name: str, tmp_path: Path) -> None:
    """Over all columns, all kinds of events, all runs: none slips through."""
    dice = random.Random(f"{name} 1")
    missed = []
    with store_under_test(name, tmp_path) as store:
        crime = Crime(store)
        done: dict[str, int] = {}
        while sum(done.values()) < CHANGES[name]:
            column = COLUMNS[1 + sum(done.values()) % 7]
            row = dice.choice(crime.rows)
            old = row[COLUMNS.index(column)]
            new = changed(old, column, dice)
            if new == old or not crime.vandal.change(row.position, column, new):
                continue
            done[column] = done.get(column, 0) + 1
            if column == "run_id":
                report = crime.ledger.verify_all()
            else:
                report = crime.ledger.verify(row.run_id.decode())
            if not names(report, row.run_id, row.version, row.position):
                missed.append((column, row[1:4], old, new, report.problems))
            crime.vandal.change(row.position, column, old)
        assert missed == []
        assert min(done.values()) >= CHANGES[name] // 7
        assert crime.vandal.rows() == crime.rows
        assert crime.ledger.verify_all().ok


def test_verify_of_one_run_finds_what_verify_all_finds(crime: Crime) -> None:
    """A byte in each record's data, by verify of its run, and of a run that descends from it."""
    for row in crime.rows:
        crime.vandal.change(row.position, "data", row.data[:-1] + b"]")
        assert names(
            crime.ledger.verify(row.run_id.decode()), row.run_id, row.version, row.position
        )
        crime.vandal.change(row.position, "data", row.data)
    row = crime.of(crime.runs["plain"])[2]
    crime.vandal.change(row.position, "tag", b"run.parked")
    assert names(crime.ledger.verify(crime.runs["of_fork"]), row.run_id, row.version, row.position)


# --- rows ----------------------------------------------------------------------------


def test_a_deleted_record_is_named(crime: Crime) -> None:
    """The first, the last, any in between; by verify of its run and of the whole ledger."""
    for row in crime.rows:
        crime.vandal.delete(row.position)
        for report in (crime.ledger.verify_all(), crime.ledger.verify(row.run_id.decode())):
            assert names(report, row.run_id, row.version), (row[1:4], report.problems)
        crime.vandal.insert(row)
    assert crime.ledger.verify_all().ok


def test_a_cut_tail_is_named(crime: Crime) -> None:
    """The index remembers how far a run had come."""
    for run in crime.runs.values():
        own = crime.of(run)
        for keep in range(len(own)):
            for row in own[keep:]:
                crime.vandal.delete(row.position)
            report = crime.ledger.verify_all()
            assert names(report, run, own[keep].version), (keep, report.problems)
            for row in own[keep:]:
                crime.vandal.insert(row)
    assert crime.ledger.verify_all().ok


def swap(vandal: Vandal, one: RawRow, other: RawRow, columns: tuple[str, ...]) -> None:
    for row in (one, other):
        vandal.delete(row.position)
    for row, source in ((one, other), (other, one)):
        vandal.insert(
            tuple(source[at] if column in columns else row[at] for at, column in enumerate(COLUMNS))
        )


@pytest.mark.parametrize(
    "columns",
    [
        ("data",),
        ("tag", "data"),
        ("event_id",),
        ("digest",),
        ("tag", "event_id", "recorded_at", "digest", "data"),
    ],
)
def test_two_swapped_records_are_named(crime: Crime, columns: tuple[str, ...]) -> None:
    """The earlier one of the two, in whichever columns they were swapped."""
    own = crime.of(crime.runs["full"])
    for first, second in ((0, 1), (3, 4), (2, 9), (len(own) - 2, len(own) - 1)):
        one, other = own[first], own[second]
        swap(crime.vandal, one, other, columns)
        report = crime.ledger.verify_all()
        assert names(report, one.run_id, one.version, one.position), report.problems
        crime.restore()
    assert crime.ledger.verify_all().ok


def test_swapped_positions_are_named(crime: Crime) -> None:
    """Digests do not cover a position, but a run's positions grow: the one that does not is bad."""
    own = crime.of(crime.runs["full"])
    for first, second in ((0, 1), (3, 4), (2, 9), (len(own) - 2, len(own) - 1)):
        one, other = own[first], own[second]
        swap(crime.vandal, one, other, ("position",))
        report = crime.ledger.verify_all()
        assert names(report, one.run_id, own[first + 1].version), report.problems
        crime.restore()
    assert crime.ledger.verify_all().ok


def test_records_swapped_between_runs_are_named(crime: Crime) -> None:
    """Both runs report theirs."""
    one, other = crime.of(crime.runs["plain"])[1], crime.of(crime.runs["full"])[4]
    swap(crime.vandal, one, other, ("tag", "event_id", "recorded_at", "digest", "data"))
    report = crime.ledger.verify_all()
    assert names(report, one.run_id, one.version, one.position)
    assert names(report, other.run_id, other.version, other.position)


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("place", [0, 1, 3, 5])
def test_a_record_put_in_between_is_named(crime: Crime, place: int, chained: bool) -> None:
    """The forged one itself or, if its own digest was made to fit, the one that follows it."""
    run = crime.runs["plain"]
    own = crime.of(run)
    for row in own[:place:-1] if place else own[::-1]:
        crime.vandal.delete(row.position)
    if place:
        crime.vandal.delete(own[place].position)
    before = own[place - 1] if place else None
    at = own[place]
    version = at.version
    forged = {
        "run_id": at.run_id,
        "version": version,
        "tag": b"custom",
        "event_id": str(uuid4()).encode(),
        "recorded_at": at.recorded_at,
        "data": b'{"kind":"forged.note"}',
    }
    digest = link(
        before.digest if before else bytes(32),
        at.run_id,
        version,
        forged["event_id"],
        forged["tag"],
        forged["recorded_at"],
        forged["data"],
    )
    forged["digest"] = digest if chained else bytes(32)
    crime.vandal.insert((at.position, *(forged[column] for column in COLUMNS[1:])))
    top = crime.rows[-1].position + 1
    for row in own[place:]:
        crime.vandal.insert(row._replace(position=top, version=row.version + 1))
        top += 1
    report = crime.ledger.verify(run)
    assert names(report, run, version + 1 if chained else version), report.problems


@pytest.mark.parametrize("chained", [True, False])
def test_a_record_put_at_the_end_is_named(crime: Crime, chained: bool) -> None:
    """Even with a digest that fits: the index knows where the run ended."""
    run = crime.runs["plain"]
    last = crime.of(run)[-1]
    event_id, data = str(uuid4()).encode(), b'{"kind":"forged.note"}'
    digest = link(
        last.digest, last.run_id, last.version + 1, event_id, b"custom", last.recorded_at, data
    )
    crime.vandal.insert(
        (
            crime.rows[-1].position + 1,
            last.run_id,
            last.version + 1,
            b"custom",
            event_id,
            last.recorded_at,
            digest if chained else bytes(32),
            data,
        )
    )
    for report in (crime.ledger.verify(run), crime.ledger.verify_all()):
        assert names(report, run, last.version + 1)


def test_a_record_moved_to_another_run_is_named_in_both(crime: Crime) -> None:
    """It is missed where it was and found where it is."""
    source, target = crime.runs["full"], crime.runs["plain"]
    end = crime.of(target)[-1].version
    for row in crime.of(source):
        crime.vandal.delete(row.position)
        crime.vandal.insert(row._replace(run_id=str(target).encode(), version=end + 1))
        report = crime.ledger.verify_all()
        assert names(report, source, row.version), report.problems
        assert names(report, target, end + 1, row.position), report.problems
        crime.vandal.replace(row)
    assert crime.ledger.verify_all().ok


def test_a_forged_run_is_named(crime: Crime) -> None:
    """A run that was never appended, with a chain of its own, is not in the index."""
    run, event_id = uuid4(), str(uuid4()).encode()
    raw, data = str(run).encode(), b'{"kind":"forged.note"}'
    digest = link(bytes(32), raw, 1, event_id, b"custom", 1, data)
    crime.vandal.insert((crime.rows[-1].position + 1, raw, 1, b"custom", event_id, 1, digest, data))
    assert names(crime.ledger.verify_all(), run, 1)
    assert names(crime.ledger.verify(run), run, 1)


def test_a_run_that_is_gone_altogether_but_for_the_index_is_named(crime: Crime) -> None:
    """All of its records deleted."""
    for run in crime.runs.values():
        for row in crime.of(run):
            crime.vandal.delete(row.position)
        assert names(crime.ledger.verify_all(), run, crime.of(run)[0].version)
        crime.restore()


@pytest.mark.parametrize("parent", ["itself", "each other", "nobody"])
def test_a_child_with_a_forged_parent_is_named_and_verify_ends(crime: Crime, parent: str) -> None:
    """A circle of parents is found, not followed for ever."""
    fork, of_fork = crime.runs["fork"], crime.runs["of_fork"]

    def adopt(run: UUID, by: UUID) -> None:
        row = crime.of(run)[0]
        old = {"fork": crime.runs["plain"], "of_fork": fork}["fork" if run == fork else "of_fork"]
        crime.vandal.change(
            row.position, "data", row.data.replace(str(old).encode(), str(by).encode())
        )

    if parent == "itself":
        adopt(fork, fork)
    elif parent == "each other":
        adopt(fork, of_fork)
    else:
        adopt(fork, uuid4())
    first = crime.of(fork)[0]
    assert names(crime.ledger.verify_all(), fork, first.version, first.position)
    assert names(crime.ledger.verify(fork), fork, first.version, first.position)
    assert not crime.ledger.verify(of_fork).ok


# --- the index and the blobs -----------------------------------------------------------


def index_changes(vandal: Vandal, run: UUID) -> Iterator[tuple[str, Any]]:
    row = vandal.run_row(run)
    other = str(uuid4()).encode()
    values: dict[str, Any] = {
        "run_id": other,
        "version": row["version"] + 1,
        "digest": bytes(32),
        "recorded_at": row["recorded_at"] + 1,
        "epoch": row["epoch"] + 1,
        "status": b"parked",
        "started_at": row["started_at"] - 1,
        "prompt": b"other/prompt",
        "kind": b"run" if row["kind"] != b"run" else b"fork",
        "parent": other,
        "parent_version": row["parent_version"] + 1,
        "tags": b'{"forged":"tag"}',
    }
    yield from values.items()
    yield "version", row["version"] - 1
    yield "digest", row["digest"][:-1] + bytes([row["digest"][-1] ^ 1])
    if row["parent"] is not None:
        yield "parent", str(run).encode()
        yield "parent", None
        yield "parent_version", row["parent_version"] - 1


def test_a_changed_index_row_is_named(crime: Crime) -> None:
    """Every column of every run: verify_all names the run, and a rebuild mends it."""
    changed = set()
    for run in crime.runs.values():
        old = crime.vandal.run_row(run)
        for column, value in list(index_changes(crime.vandal, run)):
            if not crime.vandal.change_run(run, column, value):
                continue
            changed.add(column)
            report = crime.ledger.verify_all()
            named = any(p.run_id == str(run) for p in report.problems)
            assert named, (column, value, report.problems)
            where = value.decode() if column == "run_id" else run
            crime.vandal.change_run(where, column, old[column])
    assert changed == set(RUN_COLUMNS)
    assert crime.ledger.verify_all().ok


def test_reading_through_a_damaged_index_ends_with_a_typed_error(store: StoreUnderTest) -> None:
    """A run that is its own ancestor, or whose parent is not there, is no endless loop."""
    crime = Crime(store)
    fork = crime.runs["fork"]
    for parent in (fork, crime.runs["of_fork"], uuid4()):
        crime.vandal.change_run(fork, "parent", str(parent).encode())
        fresh = store.open()
        with pytest.raises((IntegrityFailureError, LookupError)) as caught:
            list(fresh.read(fork))
        assert isinstance(caught.value, TurnledgerError)
        assert not fresh.verify(fork).ok


def test_a_changed_or_removed_blob_names_the_records_that_refer_to_it(crime: Crime) -> None:
    """Every single byte of it."""
    name = blob_name(PICTURE)
    full = crime.runs["full"]
    (first, *_) = [r for r in crime.of(full) if name.encode() in r.data]
    for at in range(len(PICTURE)):
        raw = bytearray(PICTURE)
        raw[at] ^= 1 << at % 8
        crime.vandal.change_blob(name, bytes(raw))
        report = crime.ledger.verify_all()
        assert names(report, full, first.version, first.position)
        assert any(name in problem.what for problem in report.problems)
    crime.vandal.change_blob(name, PICTURE)
    assert crime.ledger.verify_all().ok
    crime.vandal.delete_blob(name)
    report = crime.ledger.verify_all()
    assert names(report, full, first.version, first.position)
    assert all(isinstance(problem, Problem) for problem in report.problems)
