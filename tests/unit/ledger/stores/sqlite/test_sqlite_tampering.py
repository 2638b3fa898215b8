"""What somebody can do to a ledger who has its file and SQLite: verify finds it, and ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.harness import SQLiteVandal
from tests.conformance.samples import notes
from turnledger.ledger import NEW, IntegrityFailureError, Ledger, RunStarted, new_run_id
from turnledger.ledger.integrity.seal import Seal, check_seal, make_seal

NOW = 1_700_000_000_000_000


class Book:
    """A sealed ledger of one run with three records, and SQLite on its file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = Ledger.open(path)
        self.run: UUID = new_run_id()
        self.ledger.append(self.run, [RunStarted(tags={"team": "red"}), *notes(2)], NEW)
        self.seal: Seal = make_seal(self.ledger, NOW)
        self.vandal = SQLiteVandal(path)

    def do(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            for statement in statements:
                db.execute(statement)

    def unguarded(self, *statements: str) -> None:
        """The same, where triggers would refuse it; they are there again afterwards."""
        with self.vandal.unguarded() as db:
            for statement in statements:
                db.execute(statement)

    def said(self) -> str:
        """All that verify says, with the seal and without; it does not raise."""
        report = self.ledger.verify_all()
        assert (
            check_seal(self.ledger, self.seal).problems[: len(report.problems)] == report.problems
        )
        return "\n".join(map(str, report.problems))


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "runs.db")
    yield book
    book.vandal.close()
    book.ledger.close()


# --- rows -------------------------------------------------------------------------------------

COPY = (
    "INSERT INTO events SELECT position+10, {run}, {version}, tag, '0195f5a0-0000-7000-8000-"
    "00000000abcd', recorded_at, digest, data FROM events WHERE version=2"
)


@pytest.mark.parametrize("version", [1, 2, 4])
@pytest.mark.parametrize("run", ["CAST(run_id AS BLOB)", "x''", "x'ff'", "'no text: 00'"])
def test_a_record_of_a_run_id_that_is_no_text_is_found(book: Book, run: str, version: int) -> None:
    """`tail` shows it, though no reader of a run does."""
    book.do(COPY.format(run=run, version=version))
    assert len(list(book.ledger.tail())) == 4
    assert "id is not a UUID" in book.said()


# --- the schema -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DROP TRIGGER events_refuse_UPDATE"], "the trigger events_refuse_UPDATE is missing"),
        (
            [
                "DROP TRIGGER blobs_refuse_DELETE",
                "CREATE TRIGGER blobs_refuse_DELETE BEFORE DELETE ON blobs BEGIN SELECT 1; END",
            ],
            "the trigger blobs_refuse_DELETE is not defined as",
        ),
        (
            ["CREATE TRIGGER t AFTER DELETE ON leases BEGIN DELETE FROM runs; END"],
            "the trigger 't' is not the ledger's",
        ),
        (["CREATE VIEW mine AS SELECT * FROM events"], "the view 'mine' is not the ledger's"),
        (["DROP VIEW log", "CREATE VIEW log AS SELECT 1 AS position"], "the view log is not"),
        (["DROP INDEX runs_by_start"], "the index runs_by_start is missing"),
        (
            ["DROP INDEX events_by_id", "CREATE INDEX events_by_id ON events (event_id)"],
            "the index events_by_id is not defined as",
        ),
    ],
)
def test_a_changed_schema_is_found(book: Book, statements: list[str], words: str) -> None:
    """Whatever acts on rows, or shows them, is what this program makes."""
    book.do(*statements)
    assert f"the file: {words}" in book.said()


def test_a_view_in_the_place_of_the_events_is_found(book: Book) -> None:
    """It could show to each reader what it wants to."""
    book.do(
        "PRAGMA legacy_alter_table=ON",
        "ALTER TABLE events RENAME TO real",
        "CREATE VIEW events AS SELECT * FROM real",
    )
    assert "events is a view, and should be a table" in book.said()


def test_events_whose_positions_may_repeat_are_found(book: Book) -> None:
    """A reader that goes by positions would miss some."""
    book.do(
        "PRAGMA legacy_alter_table=ON",
        "CREATE TABLE other (position INTEGER, run_id TEXT, version INTEGER, tag TEXT, "
        "event_id TEXT, recorded_at INTEGER, digest BLOB, data TEXT)",
        "INSERT INTO other SELECT * FROM events",
        "DROP TABLE events",
        "ALTER TABLE other RENAME TO events",
    )
    assert "the table events is not defined as" in book.said()


def test_tables_and_indexes_of_others_are_their_matter(book: Book) -> None:
    """They change nothing that a reader of the ledger sees."""
    book.do(
        "CREATE TABLE mine (a INTEGER PRIMARY KEY AUTOINCREMENT, b TEXT UNIQUE)",
        "CREATE INDEX my_times ON events (recorded_at)",
        "ANALYZE",
    )
    assert book.said() == ""


# --- values of other types ------------------------------------------------------------------


def test_an_index_that_says_nonsense_of_a_parent_is_reported(book: Book) -> None:
    """Of a run without records, and of one whose first is gone."""
    book.unguarded(
        "DELETE FROM events WHERE version=1",
        "UPDATE runs SET parent_version='x'",
        "INSERT INTO runs SELECT 'other', version, digest, recorded_at, epoch, status, started_at, "
        "prompt, kind, parent, 'x', tags FROM runs",
    )
    said = book.said()
    assert f"run {book.run}, version 1: the record is missing" in said
    assert "run other: the run is in the index and has no records" in said


@pytest.mark.parametrize(
    "column", ["version", "digest", "recorded_at", "epoch", "started_at", "parent_version"]
)
def test_nothing_is_sealed_by_an_index_of_other_types(book: Book, column: str) -> None:
    """A typed error that names the run, and what to do."""
    book.do(f"UPDATE runs SET {column}='x'")
    assert "instead of" in book.said()
    with pytest.raises(IntegrityFailureError, match=r"is damaged: .* is 'x'"):
        make_seal(book.ledger, NOW)


def test_a_position_that_is_no_number_is_reported(book: Book) -> None:
    """By verify and by a seal; whoever reads by positions gets a typed error."""
    book.do(
        "PRAGMA legacy_alter_table=ON",
        "CREATE TABLE other (position, run_id TEXT, version INTEGER, tag TEXT, event_id TEXT, "
        "recorded_at INTEGER, digest BLOB, data TEXT)",
        "INSERT INTO other SELECT CASE version WHEN 3 THEN 'x' ELSE position END, run_id, version, "
        "tag, event_id, recorded_at, digest, data FROM events",
        "DROP TABLE events",
        "ALTER TABLE other RENAME TO events",
    )
    assert "position x does not come after position 2" in book.said()
    readers: tuple[Callable[[], Any], ...] = (
        lambda: list(book.ledger.tail()),
        lambda: make_seal(book.ledger, NOW),
    )
    for read in readers:
        with pytest.raises(IntegrityFailureError):
            read()
