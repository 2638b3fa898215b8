"""Ledgers that an older program made: brought up to today's format when they are opened."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest

from tests.conformance.samples import PICTURE, note, one_of_each, started
from tests.postgres import new_database
from turnledger.ledger import (
    NEW,
    Codec,
    InvalidTokenError,
    Ledger,
    NotALedgerError,
    StoreUnavailableError,
    SystemClock,
    Tokens,
    Watermark,
    back_up,
    new_run_id,
)
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.stores.sqlite.store import SQLiteStore
from turnledger.projections import (
    TableNotMadeError,
    ToolStatistics,
    catch_up,
    rebuild,
    table_rows,
)
from turnledger.projections.tables.storage import kept_tables

FORMATS = Path(__file__).parent / "formats"
ROOT = Path(__file__).parents[4]
RUN = new_run_id()
TABLES = ("events", "blobs", "runs", "run_tags", "leases")
WATERMARK = Watermark("f", 3, "")


class OldLedger(ABC):
    """A ledger of an old format that holds one run, and the means to look at it from outside."""

    url: str

    def __init__(self, folder: Path, number: int = 1) -> None:
        self.number = number
        self.make(folder)

    def statements(self, store: str) -> list[str]:
        """The SQL that makes it: of format 1, and what each later one added."""
        files = (FORMATS / f"{store}-{number}.sql" for number in range(1, self.number + 1))
        return [file.read_text() for file in files]

    def fill(self, url: str) -> None:
        with Ledger.open(url) as ledger:
            ledger.append(RUN, [started(), *one_of_each()], NEW, blobs=[PICTURE])
            ledger.claim(RUN)

    @abstractmethod
    def make(self, folder: Path) -> None: ...

    @abstractmethod
    def sql(self, statement: str) -> list[Any]: ...

    @abstractmethod
    def set_format(self, number: int) -> None: ...

    @abstractmethod
    def format(self) -> int: ...

    @abstractmethod
    def layout(self) -> Any:
        """Everything that the database says about tables, columns, indexes and triggers."""

    @abstractmethod
    def new_layout(self) -> Any:
        """The same of a ledger that was made today."""

    def content(self) -> list[list[Any]]:
        return [self.sql(f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES]


class OldSQLite(OldLedger):
    def make(self, folder: Path) -> None:
        self.url = str(folder / "old.db")
        self._today = str(folder / "today.db")
        self.fill(self._today)
        with closing(sqlite3.connect(self.url, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            for script in self.statements("sqlite"):
                db.executescript(script)
            db.execute("ATTACH ? AS today", (self._today,))
            for table in TABLES:
                db.execute(f"INSERT INTO {table} SELECT * FROM today.{table}")

    def sql(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.url, isolation_level=None)) as db:
            return db.execute(statement).fetchall()

    def set_format(self, number: int) -> None:
        self.sql(f"PRAGMA user_version = {number}")

    def format(self) -> int:
        return int(self.sql("PRAGMA user_version")[0][0])

    def layout(self) -> Any:
        return self._layout(self.url)

    def new_layout(self) -> Any:
        return self._layout(self._today)

    def _layout(self, path: str) -> Any:
        with closing(sqlite3.connect(path)) as db:
            found = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        return sorted((kind, name, " ".join((sql or "").split())) for kind, name, sql in found)


class OldPostgres(OldLedger):
    def make(self, folder: Path) -> None:
        self.url = new_database()
        self.fill(f"{self.url}&schema=today")
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("CREATE SCHEMA turnledger")
            for script in self.statements("postgresql"):
                db.execute(script)
            for table in TABLES:
                db.execute(f"INSERT INTO {table} SELECT * FROM today.{table}")

    def sql(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def set_format(self, number: int) -> None:
        self.sql(f"UPDATE meta SET value = '{number}' WHERE key = 'format'")

    def format(self) -> int:
        return int(self.sql("SELECT value FROM meta WHERE key = 'format'")[0][0])

    def layout(self) -> Any:
        return self._layout("turnledger")

    def new_layout(self) -> Any:
        return self._layout("today")

    def _layout(self, schema: str) -> Any:
        found = self.sql(
            "SELECT relname, relkind, reloptions, attname, atttypid::regtype::text, attnotnull, "
            "attstorage, collname, pg_get_indexdef(c.oid) FROM pg_class c "
            "JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 "
            "LEFT JOIN pg_collation o ON o.oid = attcollation "
            f"WHERE relnamespace = '{schema}'::regnamespace AND relkind <> 't'"
        )
        return sorted(str(row).replace(schema, "") for row in found)


@pytest.fixture(
    params=[(kind, number) for kind in (OldSQLite, OldPostgres) for number in (1, 2, 3)]
)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldLedger:
    """A ledger of every old format in every durable store in turn."""
    kind, number = request.param
    ledger: OldLedger = kind(tmp_path, number)
    assert ledger.format() == number
    return ledger


def use(ledger: Ledger) -> None:
    """Read and write what an old ledger holds, and what it lacked."""
    assert ledger.verify_all().problems == ()
    assert ledger.head(RUN) == len(one_of_each()) + 2
    assert ledger.derived_data("totals").advance(None, WATERMARK, {"k": "v"})
    assert ledger.derived_data("totals").snapshot() == (WATERMARK, {"k": "v"})
    assert ledger.append(new_run_id(), note(), NEW).version == 1
    tokens = Tokens(ledger)
    assert tokens.check(tokens.new("reader").text).role == "reader"


@pytest.mark.parametrize("create", [True, False])
def test_an_old_ledger_gets_what_is_new_and_keeps_all_else(old: OldLedger, create: bool) -> None:
    """Afterwards it is as if it had been made today."""
    before = old.content()
    with Ledger.open(old.url, create=create) as ledger:
        assert old.content() == before
        assert (old.format(), old.layout()) == (4, old.new_layout())
        use(ledger)
    with Ledger.open(old.url, create=create) as ledger:
        assert ledger.derived_data("totals").snapshot() == (WATERMARK, {"k": "v"})
    assert old.sql("SELECT value FROM meta WHERE key = 'catalogue'") == [(str(CATALOGUE),)]


def test_threads_that_open_an_old_ledger_at_once_all_get_it(old: OldLedger) -> None:
    """Whoever comes second finds the tables that the first has made."""
    together = Barrier(8)

    def open_and_put(number: int) -> None:
        together.wait(30)
        with Ledger.open(old.url) as ledger:
            ledger.derived_data("opened").put({str(number): "v"})

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_and_put, range(8))) == [None] * 8
    with Ledger.open(old.url) as ledger:
        assert len(list(ledger.derived_data("opened").items())) == 8
        use(ledger)


OPEN = """
import sys
from turnledger.ledger import Ledger
print("ready", flush=True)
sys.stdin.read(1)
with Ledger.open(sys.argv[1], create=False) as ledger:
    ledger.derived_data("opened").put({sys.argv[2]: "v"})
print("done", flush=True)
"""


def test_processes_that_open_an_old_ledger_at_once_all_get_it(old: OldLedger) -> None:
    """The lock that guards its making guards this too."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, old.url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        for number in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b".")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=60)[0] for worker in workers]
    assert answers == [b"done\n"] * 4
    with Ledger.open(old.url) as ledger:
        assert len(list(ledger.derived_data("opened").items())) == 4
        use(ledger)


@pytest.mark.parametrize("number", [0, 5, 99])
def test_a_format_that_this_program_does_not_know_is_refused(old: OldLedger, number: int) -> None:
    """Newer or older than all it can bring up: the ledger stays as it is."""
    old.set_format(number)
    before = old.layout()
    with pytest.raises(NotALedgerError, match=f"format {number}, this program uses 4"):
        Ledger.open(old.url)
    assert (old.format(), old.layout()) == (number, before)


def test_what_can_not_be_finished_is_not_begun(old: OldLedger) -> None:
    """Somebody's own table by a name that is needed: an error, and the ledger stays as it is."""
    table = ("shelf_rows", "access_tokens", "runs_by_end")[old.number - 1]
    old.sql(f"CREATE TABLE {table} (mine integer)")
    before = old.layout()
    with pytest.raises((NotALedgerError, StoreUnavailableError), match=table):
        Ledger.open(old.url)
    assert (old.format(), old.layout()) == (old.number, before)
    old.sql(f"DROP TABLE {table}")
    with Ledger.open(old.url) as ledger:
        use(ledger)


def test_a_role_that_may_not_make_tables_is_told_who_must(tmp_path: Path) -> None:
    """Once the owner has opened the ledger, the role can use it, given its rights."""
    old = OldPostgres(tmp_path)
    name = f"agent_{new_run_id().hex}"
    old.sql(f"CREATE ROLE {name} LOGIN")
    try:
        old.sql(f"GRANT USAGE ON SCHEMA turnledger TO {name}")
        rights = (
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA turnledger TO {name}"
        )
        old.sql(rights)
        theirs = old.url.replace("//postgres@", f"//{name}@")
        with pytest.raises(StoreUnavailableError, match="as the owner of its tables"):
            Ledger.open(theirs)
        assert old.format() == 1
        Ledger.open(old.url).close()
        old.sql(rights)
        with Ledger.open(theirs) as ledger:
            use(ledger)
    finally:
        old.sql(f"DROP OWNED BY {name}")
        old.sql(f"DROP ROLE {name}")


def use_as_it_is(ledger: Ledger) -> None:
    """Read a ledger of format 2 that could not be upgraded: all but access tokens is there."""
    assert ledger.verify_all().problems == ()
    assert ledger.head(RUN) == len(one_of_each()) + 2
    assert ledger.derived_data("totals").snapshot() == (None, {})
    assert Tokens(ledger).list() == ()
    with pytest.raises(InvalidTokenError):
        Tokens(ledger).check(f"tl_{'0' * 12}_{'0' * 64}")
    with pytest.raises(StoreUnavailableError, match="older format, without access tokens"):
        Tokens(ledger).new("reader")


def test_a_file_of_format_2_that_can_only_be_read_is_read_as_it_is(tmp_path: Path) -> None:
    """It gets its new table once it is opened where it can be written; so does a backup of it."""
    old = OldSQLite(tmp_path, 2)
    old.sql("PRAGMA journal_mode=DELETE")
    before = old.layout()
    store = SQLiteStore.open(Path(old.url), wait=30, read_only=True)
    with Ledger(store, codec=Codec(), clock=SystemClock()) as ledger:
        use_as_it_is(ledger)
        for verify in (True, False):
            back_up(ledger, tmp_path / f"copy-{verify}.db", verify=verify)
    assert (old.format(), old.layout()) == (2, before)
    for path in (old.url, tmp_path / "copy-True.db", tmp_path / "copy-False.db"):
        with Ledger.open(path) as ledger:
            use(ledger)


def test_a_role_that_may_not_make_tables_uses_format_2_as_it_is(tmp_path: Path) -> None:
    """It appends and claims as before the upgrade, and after it without rights on the table."""
    old = OldPostgres(tmp_path, 2)
    name = f"agent_{new_run_id().hex}"
    old.sql(f"CREATE ROLE {name} LOGIN")
    try:
        old.sql(f"GRANT USAGE ON SCHEMA turnledger TO {name}")
        old.sql(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA turnledger TO {name}"
        )
        theirs = old.url.replace("//postgres@", f"//{name}@")
        with Ledger.open(theirs) as ledger:
            use_as_it_is(ledger)
            assert ledger.begin(new_run_id(), started()).epoch == 1
        assert old.format() == 2
        Ledger.open(old.url).close()
        with Ledger.open(theirs) as ledger:
            assert ledger.verify_all().problems == ()
            assert ledger.begin(new_run_id(), started()).epoch == 1
            with pytest.raises(StoreUnavailableError, match="access_tokens"):
                Tokens(ledger).list()
    finally:
        old.sql(f"DROP OWNED BY {name}")
        old.sql(f"DROP ROLE {name}")


def test_a_server_that_only_reads_gives_format_2_as_it_is(tmp_path: Path) -> None:
    """A standby can make no table."""
    old = OldPostgres(tmp_path, 2)
    with Ledger.open(f"{old.url}&options=-c%20default_transaction_read_only%3Don") as ledger:
        use_as_it_is(ledger)
    assert old.format() == 2


def use_without_indexes(ledger: Ledger) -> None:
    """Read a ledger of format 3 that could not be upgraded: runs are only found more slowly."""
    assert ledger.verify_all().problems == ()
    assert [run.run_id for run in ledger.runs(id_part=str(RUN)[-8:])] == [RUN]
    assert list(ledger.runs(parent=RUN)) == []
    assert Tokens(ledger).list() == ()


def test_a_ledger_of_format_3_that_can_only_be_read_is_read_as_it_is(tmp_path: Path) -> None:
    """It lacks indexes and nothing else, which is no finding."""
    old: OldLedger = OldSQLite(tmp_path, 3)
    old.sql("PRAGMA journal_mode=DELETE")
    store = SQLiteStore.open(Path(old.url), wait=30, read_only=True)
    with Ledger(store, codec=Codec(), clock=SystemClock()) as ledger:
        use_without_indexes(ledger)
    assert old.format() == 3
    old = OldPostgres(tmp_path, 3)
    with Ledger.open(f"{old.url}&options=-c%20default_transaction_read_only%3Don") as ledger:
        use_without_indexes(ledger)
    assert old.format() == 3


def test_tables_of_the_version_with_generations_are_ignored_and_made_again(old: OldLedger) -> None:
    """Its watermarks and rows are in the same tables, under a generation from 1 on."""
    with Ledger.open(old.url) as ledger:
        table = ToolStatistics()
        old.sql(
            "INSERT INTO shelves (name, fingerprint, generation, position, state) VALUES "
            "('table:tool-statistics', 'tool-statistics/1', 3, 2, '{}'), ('tables', '', 3, 0, '')"
        )
        old.sql(
            "INSERT INTO shelf_rows (shelf, generation, key, value) VALUES "
            """('table:tool-statistics', 3, 'row/search', '["search",{"started":9}]')"""
        )
        assert kept_tables(ledger) == []
        with pytest.raises(TableNotMadeError):
            table_rows(ledger, table)
        catch_up(ledger, table)
        made = table_rows(ledger, table)
        assert made.rows
        rebuild(ledger, table)
        assert table_rows(ledger, table) == made
        assert old.sql("SELECT DISTINCT generation FROM shelf_rows") == [(0,)]
        assert [kept.name for kept in kept_tables(ledger)] == ["tool-statistics"]
