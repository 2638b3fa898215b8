"""What an owner of the tables can do to a ledger: verify finds it, no append serves it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import psycopg
import pytest

from tests.conformance.samples import note, notes
from tests.postgres import new_database
from turnledger.ledger import (
    ANY,
    NEW,
    EventIdConflictError,
    Ledger,
    RunStarted,
    StoreUnavailableError,
    new_run_id,
)
from turnledger.ledger.stores.postgres import sql
from turnledger.ledger.stores.postgres.schema import UNTOUCHED

CHANGING = (
    "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN {}; END $$"
)
REPLACED = "OR REPLACE FUNCTION refuse_change"


class Book:
    """A ledger of one run with three records, and SQL on its tables."""

    def __init__(self, url: str) -> None:
        self.ledger = Ledger.open(url)
        self.run: UUID = new_run_id()
        self.ledger.append(self.run, [RunStarted(tags={"team": "red"}), *notes(2)], NEW)
        self.db = psycopg.connect(url, autocommit=True)
        self.db.execute("SET search_path = turnledger")

    def do(self, *statements: str) -> None:
        for statement in statements:
            self.db.execute(statement.encode())

    def findings(self) -> list[str]:
        return [problem.what for problem in self.ledger.verify_all().problems]


@pytest.fixture
def book() -> Iterator[Book]:
    book = Book(new_database())
    yield book
    book.db.close()
    book.ledger.close()


def trigger(table: str, when: str, does: str, returns: str = "NEW") -> list[str]:
    """Statements that make a trigger which is not the ledger's."""
    return [
        CHANGING.format(does, returns),
        f"CREATE TRIGGER theirs {when} ON {table} FOR EACH ROW EXECUTE FUNCTION change()",
    ]


def test_a_schema_as_it_was_made_has_no_findings(book: Book) -> None:
    """Nor have tables, views and indexes that other programs put beside it."""
    assert book.findings() == []
    book.do(
        "CREATE TABLE mine (a int PRIMARY KEY)",
        "CREATE VIEW my_view AS SELECT * FROM events",
        "CREATE INDEX my_times ON events (recorded_at)",
        "ANALYZE",
    )
    assert book.findings() == []


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DROP TRIGGER events_refuse_change ON events"], "trigger events_refuse_change is miss"),
        (["DROP TRIGGER blobs_refuse_change ON blobs"], "trigger blobs_refuse_change is missing"),
        (["ALTER TABLE events DISABLE TRIGGER USER"], "trigger events_refuse_change is not def"),
        (trigger("leases", "AFTER DELETE", "NULL"), "the trigger 'theirs' is not the ledger's"),
        (trigger("events", "BEFORE INSERT", "NULL"), "the trigger 'theirs' is not the ledger's"),
        (["CREATE RULE mine AS ON DELETE TO runs DO INSTEAD NOTHING"], "the rule 'mine' is not"),
        (["DROP TABLE leases"], "the table leases is missing"),
        (["DROP VIEW log"], "the view log is missing"),
        (["ALTER TABLE leases SET UNLOGGED"], "the relation leases is not defined as"),
        (["ALTER TABLE run_tags ENABLE ROW LEVEL SECURITY"], "the relation run_tags is not def"),
        (["ALTER TABLE leases DROP COLUMN holder"], "the column leases.holder is missing"),
        (["ALTER TABLE blobs ADD COLUMN x int"], "the column 'blobs.x' is not the ledger's"),
        (
            ["ALTER TABLE runs ALTER COLUMN prompt TYPE varchar(9)"],
            "the column runs.prompt is not defined as",
        ),
        (["ALTER TABLE runs ALTER COLUMN tags DROP NOT NULL"], "the column runs.tags is not"),
        (["ALTER TABLE leases DROP CONSTRAINT leases_pkey"], "constraint leases_pkey is missing"),
        (["ALTER TABLE runs ADD CHECK (version < 9)"], "'runs_version_check' is not the ledger's"),
        (["DROP INDEX events_by_id"], "the index events_by_id is missing"),
        (
            ["DROP INDEX events_by_id", "CREATE INDEX events_by_id ON events (event_id)"],
            "the index events_by_id is not defined as",
        ),
        (
            [CHANGING.format("NULL", "NULL").replace("FUNCTION change", REPLACED)],
            "the function refuse_change is not defined as",
        ),
    ],
)
def test_a_changed_schema_is_found(book: Book, statements: list[str], words: str) -> None:
    """Whatever acts on rows, holds them or keeps them unique is what this program makes."""
    book.do(*statements)
    assert any(words in found for found in book.findings())


@pytest.mark.parametrize(
    "statements",
    [
        trigger("events", "BEFORE INSERT", "NEW.data = '{}'"),
        trigger("events", "BEFORE INSERT", "NULL", "NULL"),
        trigger("events", "AFTER INSERT", "DELETE FROM leases"),
        trigger("runs", "BEFORE UPDATE", "NEW.status = 'completed'"),
        trigger("blobs", "BEFORE INSERT", "NEW.content = ''"),
        ["CREATE RULE mine AS ON UPDATE TO runs DO INSTEAD NOTHING"],
        ["DROP TRIGGER events_refuse_change ON events"],
        ["ALTER TABLE blobs DISABLE TRIGGER blobs_refuse_change"],
    ],
)
def test_no_append_serves_triggers_or_rules_of_others(book: Book, statements: list[str]) -> None:
    """Alone and in a group, it is refused before anything is written, and works without them."""
    book.do(*statements)
    with pytest.raises(
        StoreUnavailableError, match=r"nothing was written|PostgreSQL failed"
    ) as one:
        book.ledger.append(book.run, note(), 3)
    together = Barrier(4)

    def write(_: int) -> bool:
        together.wait()
        with pytest.raises(StoreUnavailableError):
            book.ledger.append(new_run_id(), note(), NEW)
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(write, range(4)))
    assert book.ledger.head(book.run) == 3
    assert len(list(book.ledger.tail())) == 3
    book.do(
        "DROP TRIGGER IF EXISTS theirs ON events",
        "DROP TRIGGER IF EXISTS theirs ON runs",
        "DROP TRIGGER IF EXISTS theirs ON blobs",
        "DROP RULE IF EXISTS mine ON runs",
        "CREATE OR REPLACE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE "
        "ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()",
        "ALTER TABLE blobs ENABLE TRIGGER blobs_refuse_change",
    )
    assert not book.ledger.append(book.run, one.value.drafts, 3).duplicate
    assert book.findings() == []


@pytest.mark.parametrize(
    "change", ["data = '{}'", "tag = 'x'", "recorded_at = 1", "digest = ''", "event_id = 'x'"]
)
def test_an_append_compares_every_column_that_is_stored(
    book: Book, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the triggers seem to be ours: the digest does not move with the data."""
    book.do(
        "ALTER TABLE events DISABLE TRIGGER USER",
        *trigger("events", "BEFORE INSERT", f"NEW.{change}"),
    )
    # A trigger that hides from the catalogue, as a changed server could have it.
    for table in (sql._ADVANCE, {"ADVANCE_MANY": sql.ADVANCE_MANY}):
        for key, statement in table.items():
            monkeypatch.setitem(table, key, statement.replace(f"WHERE {UNTOUCHED}", ""))
    with pytest.raises(StoreUnavailableError, match="other events than it was given"):
        book.ledger.append(book.run, note(), 3)
    # Where all events get the same id, the database refuses them itself, for as long as it is
    # tried again.
    with (
        Ledger.open(book.ledger.url, wait=0.5) as hasty,
        pytest.raises(StoreUnavailableError, match=r"other events than|same event"),
    ):
        hasty.append(new_run_id(), notes(3), NEW)
    assert not book.ledger.verify_all().ok


def test_a_retry_of_what_was_changed_on_its_way_is_not_acknowledged(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids are there, with other content."""
    book.do(*trigger("events", "BEFORE INSERT", "NEW.data = '{}'"))
    for key, statement in sql._ADVANCE.items():
        monkeypatch.setitem(sql._ADVANCE, key, statement.replace(f"WHERE {UNTOUCHED}", ""))
    with pytest.raises(StoreUnavailableError) as one:
        book.ledger.append(book.run, note(), 3)
    with pytest.raises((EventIdConflictError, StoreUnavailableError)):
        book.ledger.append(book.run, one.value.drafts, ANY)
