"""Imports into ledgers that are damaged, and into such as change while they are looked at."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.conformance.harness import STORES, store_under_test
from tests.conformance.samples import note, notes
from tests.unit.ledger.export_files import export, take
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Draft,
    ImportConflictError,
    IntegrityFailureError,
    Ledger,
    import_runs,
    new_run_id,
)
from turnledger.ledger.integrity.seal import make_seal
from turnledger.ledger.stores.base import Store

# --- damaged --------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def by_hand(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type='trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)
        for _, definition in triggers:
            db.execute(definition)


def content_of(path: Path) -> tuple[UUID, bytes]:
    """A new ledger with one run of five records in four commits; the run and its export."""
    run = new_run_id()
    with Ledger.open(path) as ledger:
        for version in range(3):
            ledger.append(run, note(version), version)
        ledger.append(run, notes(2), 3)
        return run, export(ledger)


BEHIND = (
    "UPDATE runs SET (version, digest, recorded_at) = "
    "(SELECT version, digest, recorded_at FROM events WHERE version=2)"
)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        ["DELETE FROM runs"],
        [BEHIND],
        [BEHIND, "DELETE FROM events WHERE version=5"],
        ["DELETE FROM runs", "DELETE FROM events WHERE version=5"],
        ["DELETE FROM runs", "UPDATE events SET event_id='x' || version"],
    ],
)
def test_records_that_the_index_does_not_know_end_the_import(
    path: Path, damage: list[str], check: bool
) -> None:
    """They are neither taken for missing, nor waited for; a new index makes it all right."""
    run, content = content_of(path)
    by_hand(path, *damage)
    with Ledger.open(path) as ledger:
        with pytest.raises(IntegrityFailureError, match=rf"{run}.*index.*rebuild-index"):
            import_runs(ledger, io.BytesIO(content), check=check)
        ledger.append(new_run_id(), note(), NEW)
        if "event_id" not in damage[-1]:
            ledger.rebuild_index()
            take(ledger, content)
            assert ledger.head(run) == 5
            assert ledger.verify_all().ok


def test_records_that_only_the_index_knows_are_missed(path: Path) -> None:
    """They are not taken for there, though the index says so."""
    run, content = content_of(path)
    by_hand(path, "DELETE FROM events WHERE version>2")
    with (
        Ledger.open(path) as ledger,
        pytest.raises(IntegrityFailureError, match=rf"{run}.*index.*5.*end at 2"),
    ):
        take(ledger, content)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET digest='abc' WHERE version=3",
        "UPDATE events SET version='x' WHERE version=3",
        "UPDATE events SET run_id='other', digest='abc' WHERE version=5",
        "UPDATE runs SET version='x'",
        "UPDATE runs SET digest='abc'",
        "UPDATE runs SET parent_version='x'",
    ],
)
@pytest.mark.parametrize("longer", [True, False])
def test_columns_of_another_type_are_an_error_with_a_name(
    path: Path, damage: str, longer: bool
) -> None:
    """Whatever stands in the place of a digest or a number."""
    run, content = content_of(path)
    if longer:
        with Ledger.open("memory://") as other:
            take(other, content)
            other.append(run, note(), ANY)
            content = export(other)
    by_hand(path, damage)
    with Ledger.open(path) as ledger, pytest.raises(IntegrityFailureError, match=str(run)):
        take(ledger, content)


def test_a_check_that_finds_a_conflict_writes_nothing_at_all(path: Path) -> None:
    """Not even a mark of its own beside the events."""

    def everything() -> list[str]:
        with closing(sqlite3.connect(path)) as db:
            return list(db.iterdump())

    event_id = uuid4()
    with Ledger.open("memory://") as other, Ledger.open(path) as ledger:
        ledger.append(new_run_id(), [Draft(note(), event_id)], NEW)
        other.append(new_run_id(), [Draft(note(), event_id)], NEW)
        before = everything()
        with pytest.raises(ImportConflictError, match=str(event_id)):
            import_runs(ledger, io.BytesIO(export(other)), check=True)
        assert everything() == before


# --- changing --------------------------------------------------------------------------------


@pytest.fixture(params=STORES)
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger to import into, in every kind of store in turn."""
    with store_under_test(request.param, tmp_path) as store:
        yield store.open()


@pytest.fixture
def here() -> Iterator[Ledger]:
    with Ledger.open(f"memory://{uuid4()}") as ledger:
        yield ledger


class Grown:
    """Some runs that are in both ledgers, and have gone on here."""

    def __init__(self, here: Ledger, there: Ledger, by: int = 1) -> None:
        self.runs = [new_run_id() for _ in range(3)]
        for run in self.runs:
            here.append(run, notes(2), NEW)
        take(there, export(here))
        for run in self.runs:
            for _ in range(by):
                here.append(run, notes(500), ANY)
        self.content = export(here)


def meanwhile(
    there: Ledger, monkeypatch: pytest.MonkeyPatch, happen: Callable[[], object], batch: int
) -> None:
    """Let something happen just before a batch of an import is written."""
    write, count = Store.write, 0

    def writing(store: Store, work: Any) -> Any:
        nonlocal count
        if store is there.store and "write_runs" in repr(work):
            count += 1
            if count == batch:
                happen()
        return write(store, work)

    monkeypatch.setattr(Store, "write", writing)


def test_a_claim_that_comes_after_the_comparison_is_seen_before_anything_is_written(
    here: Ledger, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded in the run: of none of them is anything written."""
    grown = Grown(here, there)
    meanwhile(there, monkeypatch, lambda: there.claim(grown.runs[2], worker="somebody"), 1)
    with pytest.raises(ImportConflictError, match=str(grown.runs[2])):
        take(there, grown.content)
    assert [there.head(run) for run in grown.runs] == [2, 2, 3]


@pytest.mark.parametrize("by", [1, 600])
def test_an_append_that_comes_after_the_comparison_is_seen_before_anything_is_written(
    here: Ledger, there: Ledger, monkeypatch: pytest.MonkeyPatch, by: int
) -> None:
    """However far it went, the run is another one now."""
    grown = Grown(here, there)
    meanwhile(there, monkeypatch, lambda: there.append(grown.runs[2], notes(by), 2), 1)
    with pytest.raises(ImportConflictError, match=rf"line 1008: run {grown.runs[2]}, version 3"):
        take(there, grown.content)
    assert [there.head(run) for run in grown.runs] == [2, 2, 2 + by]


def test_an_import_that_comes_after_the_comparison_is_no_conflict(
    here: Ledger, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a part of what was to be imported, too."""
    grown = Grown(here, there)
    part = export(here, grown.runs[1])
    meanwhile(there, monkeypatch, lambda: take(there, part), 1)
    assert take(there, grown.content).imported == 1000
    assert export(there) == grown.content


def test_what_was_written_before_a_refusal_is_told(
    here: Ledger, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim in the middle of the writing: whole commits stay, and the error counts them."""
    grown = Grown(here, there, by=4)
    meanwhile(there, monkeypatch, lambda: there.claim(grown.runs[2]), 3)
    with pytest.raises(ImportConflictError) as caught:
        take(there, grown.content)
    written = sum(there.head(run) - 2 for run in grown.runs) - 1
    assert written > 0
    assert f"{written} records of the file were written before" in str(caught.value)
    assert there.head(grown.runs[2]) == 3
    assert there.verify_all().ok


# --- a file that changes ----------------------------------------------------------------------


class Changing(io.BytesIO):
    """A file that is replaced once it has been validated."""

    def __init__(self, first: bytes, then: bytes) -> None:
        super().__init__(first)
        self._then = then
        self._readings = 0

    def seek(self, place: int, whence: int = 0) -> int:
        if place == 0:
            self._readings += 1
            if self._readings == 4:  # each reading looks at the header, the forks, the rest
                super().seek(0)
                self.truncate()
                self.write(self._then)
        return super().seek(place, whence)


def test_a_file_that_changes_is_not_trusted_because_it_was_checked(there: Ledger) -> None:
    """A secret that came later would make a sealed run another one: it is refused then, too."""
    secret = CustomEvent(kind="a.note", data="AKIA" + "Q3EGRZC7T2LXV5NW")
    with Ledger.open(f"memory://{uuid4()}", redactor=None) as source:
        run = new_run_id()
        source.append(run, note(), NEW)
        seal = make_seal(source, 1_700_000_000_000_000)
        first = export(source, seal=seal)
        source.append(run, secret, 1)
        then = export(source, seal=seal)
    with pytest.raises(IntegrityFailureError, match="holds a secret"):
        import_runs(there, Changing(first, then), sealed=True)
    with pytest.raises(IntegrityFailureError, match=r"line 3.*changed while it was imported"):
        import_runs(there, Changing(first, first.replace(b'"number":0', b'"number":7')))
    assert list(there.runs()) == []


def test_an_event_id_that_is_taken_meanwhile_is_a_conflict(
    here: Ledger, there: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another record of another run; it is not tried for ever."""
    event_id, run = uuid4(), new_run_id()
    here.append(run, [Draft(note(), event_id)], NEW)
    taken = lambda: there.append(new_run_id(), [Draft(note(), event_id)], NEW)  # noqa: E731
    meanwhile(there, monkeypatch, taken, 1)
    with pytest.raises(ImportConflictError, match=str(event_id)):
        take(there, export(here))
    assert there.head(run) == 0
