"""A ledger in one SQLite file: nothing to install, durable before `append` returns.

Commits and checkpoints happen under one lock between processes: SQLite before 3.51.3
can corrupt a WAL that several connections write and checkpoint at once, and its own
lock is not fair. Readers have connections of their own and wait for nobody.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from eventsourcing.persistence import PersistenceError
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteDatastore,
    SQLiteFactory,
)
from eventsourcing.utils import EnvType

from ledger.errors import (
    LedgerClosedError,
    NotALedgerError,
    StoreBusyError,
    StoreUnavailableError,
)
from ledger.events import CATALOGUE
from ledger.recorder import (
    EventIdTakenError,
    Lease,
    LedgerRecorder,
    RunQuery,
    Transaction,
)
from ledger.rows import NewRow, RawRow, Row
from ledger.run_index import RunRow
from ledger.stores.file_lock import FairLock, LifeSign, is_alive
from ledger.stores.run_conditions import run_conditions
from ledger.stores.sqlite_schema import APPLICATION_ID, ROW, RUN, SCHEMA_VERSION, TABLES

READERS = 8
DEFAULT_WAIT = 30.0
# Move the WAL into the database after about this many pages, as SQLite itself would.
CHECKPOINT_PAGES = 1000
PAGE_BYTES = 4096
# A commit of one event touches the event, its two indexes, the run's row and their parents.
PAGES_PER_COMMIT = 5


def _unavailable(error: Exception, doing: str) -> StoreUnavailableError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return StoreBusyError(f"SQLite was busy while {doing} ({text}); nothing was written.")
    return StoreUnavailableError(f"SQLite failed while {doing}: {text}")


class LedgerConnectionPool(SQLiteConnectionPool):
    """Connections that are as durable as the ledger promises, and never checkpoint alone."""

    def __init__(self, *, wait: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait = wait

    def _create_connection(self) -> SQLiteConnection:
        # By URI, so that no name is misread and nothing is created by accident.
        name = f"file:{quote(self.db_name)}?mode=rw"
        raw = sqlite3.connect(
            name,
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=256,
            timeout=self.wait,
        )
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute("PRAGMA wal_autocheckpoint=0")
        raw.execute("PRAGMA foreign_keys=OFF")
        return SQLiteConnection(sqlite_conn=raw, max_age=self.max_age)


class LedgerDatastore(SQLiteDatastore):
    """The library's datastore with our connections."""

    def __init__(self, db_name: str, *, wait: float) -> None:
        super().__init__(db_name, originator_id_type="text")
        self.wait = wait
        self.pool = LedgerConnectionPool(
            db_name=db_name, wait=wait, pool_size=READERS, pool_timeout=wait
        )

    def connect(self) -> sqlite3.Connection:
        """A connection outside the pool, for the writer."""
        connection: sqlite3.Connection = self.pool._create_connection()._sqlite_conn
        return connection


class SQLiteLedgerTransaction(Transaction):
    """A transaction on the writer's connection, under the writer's lock."""

    def __init__(
        self, db: sqlite3.Connection, heads: dict[str, RunRow], folder: Path, *, careful: bool
    ) -> None:
        super().__init__(heads, careful=careful)
        self._db = db
        self._execute = db.execute
        self._folder = folder
        self._wrote = False
        self.bytes_written = 0

    def begin(self) -> None:
        try:
            self._execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise _unavailable(error, "beginning a transaction") from error

    def commit(self) -> None:
        try:
            self._execute("COMMIT")
        except sqlite3.Error as error:
            self.rollback()
            raise StoreUnavailableError(
                f"SQLite failed while committing ({error}), so the outcome is unknown. "
                "Append the same events again, with the same ids."
            ) from error

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._execute("ROLLBACK")

    def savepoint(self) -> None:
        self._execute("SAVEPOINT job")

    def release_savepoint(self) -> None:
        self._execute("RELEASE job")

    def rollback_to_savepoint(self) -> None:
        if not self._db.in_transaction:
            raise StoreUnavailableError("SQLite rolled the transaction back; nothing was written.")
        self._execute("ROLLBACK TO job")

    def wrote(self) -> bool:
        wrote, self._wrote = self._wrote, False
        return wrote

    def _advance(
        self,
        before: RunRow | None,
        after: RunRow,
        rows: Sequence[NewRow],
        blobs: Mapping[str, bytes],
    ) -> list[int] | None:
        try:
            if not self._move_run(before, after):
                return None
            self._wrote = True
            for name, content in blobs.items():
                self._execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (name, content))
                self.bytes_written += len(content)
            return self._insert(rows)
        except sqlite3.IntegrityError as error:
            if "events.event_id" in str(error):
                raise EventIdTakenError from error
            raise _unavailable(error, "appending") from error
        except sqlite3.Error as error:
            raise _unavailable(error, "appending") from error

    def _move_run(self, before: RunRow | None, after: RunRow) -> bool:
        if before is None:
            moved = self._execute(
                f"INSERT INTO runs ({RUN}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?) "
                "ON CONFLICT (run_id) DO NOTHING",
                _run_values(after),
            ).rowcount
            if moved:
                self._put_tags(after)
            return moved == 1
        if (before.status, before.epoch, before.prompt) == (
            after.status,
            after.epoch,
            after.prompt,
        ):
            return (
                self._execute(
                    "UPDATE runs SET version=?, digest=?, recorded_at=? "
                    "WHERE run_id=? AND version=?",
                    (after.version, after.digest, after.recorded_at, after.run_id, before.version),
                ).rowcount
                == 1
            )
        return (
            self._execute(
                "UPDATE runs SET version=?, digest=?, recorded_at=?, status=?, epoch=?, prompt=? "
                "WHERE run_id=? AND version=?",
                (
                    after.version,
                    after.digest,
                    after.recorded_at,
                    after.status,
                    after.epoch,
                    after.prompt,
                    after.run_id,
                    before.version,
                ),
            ).rowcount
            == 1
        )

    def _put_tags(self, row: RunRow) -> None:
        for key, value in row.tag_map.items():
            self._execute("INSERT INTO run_tags VALUES (?, ?, ?)", (key, value, row.run_id))

    def _insert(self, rows: Sequence[NewRow]) -> list[int]:
        statement = (
            "INSERT INTO events (run_id, version, tag, event_id, recorded_at, digest, data) "
            "VALUES (?,?,?,?,?,?,?)"
        )
        if len(rows) == 1:
            self.bytes_written += len(rows[0][6])
            last = self._execute(statement, rows[0]).lastrowid
            assert last is not None
            return [last]
        self._db.executemany(statement, rows)
        self.bytes_written += sum(len(row[6]) for row in rows)
        # Under the writer's lock nobody else takes a position in between.
        (last,) = self._execute("SELECT last_insert_rowid()").fetchone()
        return list(range(last - len(rows) + 1, last + 1))

    def _one(self, statement: str, *values: Any) -> Any:
        try:
            return self._execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise _unavailable(error, "reading before an append") from error

    def run(self, run_id: str) -> RunRow | None:
        found = self._one(f"SELECT {RUN} FROM runs WHERE run_id=?", run_id)
        return RunRow(*found) if found else None

    def row_at(self, run_id: str, version: int) -> Row | None:
        row: Row | None = self._one(
            f"SELECT {ROW} FROM events WHERE run_id=? AND version=?", run_id, version
        )
        return row

    def rows_by_id(self, event_ids: Sequence[str]) -> list[Row]:
        found = (self._one(f"SELECT {ROW} FROM events WHERE event_id=?", i) for i in event_ids)
        return [row for row in found if row is not None]

    def has_blob(self, name: str) -> bool:
        return self._one("SELECT 1 FROM blobs WHERE name=?", name) is not None

    def lease(self, run_id: str) -> Lease | None:
        found = self._one(
            "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id=?", run_id
        )
        return Lease(*found) if found else None

    def put_lease(self, lease: Lease) -> None:
        self._wrote = True
        self._one(
            "INSERT INTO leases VALUES (?,?,?,?,?) ON CONFLICT (run_id) DO UPDATE SET "
            "worker=excluded.worker, epoch=excluded.epoch, holder=excluded.holder, "
            "expires_at=excluded.expires_at",
            *lease,
        )

    def drop_lease(self, run_id: str) -> None:
        self._wrote = True
        self._one("DELETE FROM leases WHERE run_id=?", run_id)

    def holder_alive(self, holder: str) -> bool:
        return is_alive(self._folder, holder)

    def now(self) -> int:
        now: int = self._one("SELECT CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER)")[0]
        return now

    def rebuild_index(self, fold: Callable[[Iterator[Row]], list[RunRow]]) -> None:
        self._wrote = True
        try:
            rows = fold(self._execute(f"SELECT {ROW} FROM events ORDER BY position"))
            self._execute("DELETE FROM runs")
            self._execute("DELETE FROM run_tags")
            for row in rows:
                self._move_run(None, row)
        except sqlite3.Error as error:
            raise _unavailable(error, "rebuilding the run index") from error


def _run_values(row: RunRow) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in row.__struct_fields__)


class SQLiteLedgerRecorder(LedgerRecorder, SQLiteApplicationRecorder):
    """The store over one file."""

    datastore: LedgerDatastore

    def __init__(self, datastore: LedgerDatastore, events_table_name: str = "events") -> None:
        super().__init__(datastore, events_table_name)
        self._path = Path(datastore.pool.db_name)
        self._folder = Path(f"{self._path}-locks")
        self._lock = FairLock(self._folder, datastore.wait)
        self._writer: sqlite3.Connection | None = None
        self._life: LifeSign | None = None
        self._unmoved_pages = 0
        self._appended = Condition()
        self._closed = ""
        _OPEN.add(self)

    def construct_create_table_statements(self) -> list[str]:
        return list(TABLES)

    def create_table(self) -> None:
        """Make the tables if the file is empty; refuse a file that is something else."""
        with self._exclusively() as db:
            (found,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            if found == 0 and application == 0:
                db.execute("BEGIN IMMEDIATE")
                for statement in self.create_table_statements:
                    db.execute(statement)
                db.execute("INSERT INTO meta VALUES ('catalogue', ?)", (str(CATALOGUE),))
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                db.execute("COMMIT")
                return
            if application != APPLICATION_ID:
                raise NotALedgerError(
                    f"{self._path} is an SQLite database, but no ledger: "
                    "it was left as it was. Choose another file."
                )
            if schema != SCHEMA_VERSION:
                raise NotALedgerError(
                    f"{self._path} has ledger format {schema}, this program uses "
                    f"{SCHEMA_VERSION}. Use a turnledger that knows that format."
                )
            (written,) = db.execute("SELECT value FROM meta WHERE key='catalogue'").fetchone()
            if int(written) < CATALOGUE:
                db.execute("UPDATE meta SET value=? WHERE key='catalogue'", (str(CATALOGUE),))

    # --- writing ---

    @contextmanager
    def _exclusively(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        self._lock.acquire()
        try:
            if self._writer is None:
                self._writer = self.datastore.connect()
            yield self._writer
        except sqlite3.Error as error:
            if "not a database" in str(error) or "malformed" in str(error):
                raise NotALedgerError(f"{self._path} is not a usable database: {error}") from error
            raise _unavailable(error, "opening the database") from error
        finally:
            self._lock.release()

    @contextmanager
    def _writing(self) -> Iterator[Callable[[bool], Transaction]]:
        with self._exclusively() as db:
            started: list[SQLiteLedgerTransaction] = []

            def start(careful: bool) -> Transaction:
                started.append(
                    SQLiteLedgerTransaction(db, self._heads, self._folder, careful=careful)
                )
                return started[-1]

            try:
                yield start
            except BaseException:
                # Nothing of a broken connection is kept for the next writer.
                if db.in_transaction:
                    self._writer = None
                    with suppress(sqlite3.Error):
                        db.close()
                raise
            self._unmoved_pages += PAGES_PER_COMMIT + started[-1].bytes_written // PAGE_BYTES
            if self._unmoved_pages >= CHECKPOINT_PAGES:
                self._move_wal(db)
        with self._appended:
            self._appended.notify_all()

    def _move_wal(self, db: sqlite3.Connection) -> None:
        self._unmoved_pages = 0
        with suppress(sqlite3.Error):  # what is in the WAL is safe there; it is tried again
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # --- reading ---

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerClosedError(self._closed)

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        try:
            with self.datastore.get_connection(commit=False) as connection:
                yield connection._sqlite_conn
        except (sqlite3.Error, PersistenceError) as error:
            raise _unavailable(error, "reading") from error

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._reader() as db:
            return db.execute(statement, values).fetchall()

    def rows(
        self, run_id: str, after: int, until: int | None, *, backwards: bool, limit: int
    ) -> list[Row]:
        return self._all(
            f"SELECT {ROW} FROM events WHERE run_id=? AND version>? AND version<=? "
            f"ORDER BY version {'DESC' if backwards else 'ASC'} LIMIT ?",
            (run_id, after, until if until is not None else 2**62, limit),
        )

    def rows_after(self, position: int, limit: int) -> list[Row]:
        return self._all(
            f"SELECT {ROW} FROM events WHERE position>? ORDER BY position LIMIT ?",
            (position, limit),
        )

    def wait_for_more(self, position: int, seconds: float) -> None:
        with self._appended:
            self._appended.wait(seconds)

    def run(self, run_id: str) -> RunRow | None:
        found = self._all(f"SELECT {RUN} FROM runs WHERE run_id=?", (run_id,))
        return RunRow(*found[0]) if found else None

    def list_runs(self, query: RunQuery) -> list[RunRow]:
        where, values = run_conditions(query, "?")
        return [
            RunRow(*row)
            for row in self._all(
                f"SELECT {RUN} FROM runs {where} ORDER BY started_at DESC, run_id DESC LIMIT ?",
                [*values, query.limit],
            )
        ]

    def blob(self, name: str) -> bytes | None:
        found = self._all("SELECT content FROM blobs WHERE name=?", (name,))
        return found[0][0] if found else None

    def blob_names(self) -> Iterator[str]:
        last = ""
        while names := self._all(
            "SELECT name FROM blobs WHERE name>? ORDER BY name LIMIT 500", (last,)
        ):
            yield from (name for (name,) in names)
            last = names[-1][0]

    def lease(self, run_id: str) -> Lease | None:
        found = self._all(
            "SELECT run_id, worker, epoch, holder, expires_at FROM leases WHERE run_id=?",
            (run_id,),
        )
        return Lease(*found[0]) if found else None

    def holder(self) -> str:
        self._check_open()
        if self._life is None:
            self._life = LifeSign(self._folder)
        return self._life.name

    def written_catalogue(self) -> int | None:
        found = self._all("SELECT value FROM meta WHERE key='catalogue'")
        return int(found[0][0]) if found else None

    def raw_run_ids(self) -> Iterator[Any]:
        with self._undecoded() as db:
            yield from (row[0] for row in db.execute("SELECT DISTINCT run_id FROM events"))

    def raw_rows(self, run_id: Any) -> Iterator[RawRow]:
        with self._undecoded() as db:
            yield from db.execute(
                f"SELECT {ROW} FROM events WHERE run_id=CAST(? AS TEXT) ORDER BY version",
                (run_id,),
            )

    @contextmanager
    def _undecoded(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own that gives text as bytes, so that damage can be looked at."""
        self._check_open()
        db = self.datastore.connect()
        db.text_factory = bytes
        try:
            yield db
        except sqlite3.Error as error:
            raise _unavailable(error, "verifying") from error
        finally:
            db.close()

    def max_notification_id(self) -> int | None:  # type: ignore[override]
        highest: int | None = self._all("SELECT max(position) FROM events")[0][0]
        return highest

    def facts(self) -> dict[str, str]:
        with self._reader() as db:
            pragma = {
                name: str(db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "synchronous", "page_size", "page_count")
            }
        wal = Path(f"{self._path}-wal")
        return {
            "store": "sqlite",
            "file": str(self._path.absolute()),
            "sqlite": sqlite3.sqlite_version,
            **pragma,
            "wal_bytes": str(wal.stat().st_size if wal.exists() else 0),
        }

    # --- the end ---

    def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreBusyError), self._exclusively() as db:
            # Closing the last connection moves the WAL: under the lock, like any commit.
            self._move_wal(db)
            self.datastore.close()
            db.close()
        self._closed = "This ledger was closed. Open it again."
        if self._life is not None:
            self._life.close()
        self._lock.close()
        with self._appended:
            self._appended.notify_all()

    def abandon(self) -> None:
        """In a forked child: the connections and locks are the parent's."""
        self._closed = (
            "This ledger was opened by the process that forked this one, and SQLite does not "
            "survive a fork. Open it again in this process."
        )
        self._lock.forget()
        if self._life is not None:
            self._life.forget()


class SQLiteLedgerFactory(SQLiteFactory):
    """Builds the store the way the library builds its own, from an environment."""

    LEDGER_WAIT = "LEDGER_WAIT"
    application_recorder_class: type[SQLiteApplicationRecorder] = SQLiteLedgerRecorder

    def __init__(self, env: EnvType) -> None:
        super().__init__(env)
        self.datastore = LedgerDatastore(
            self.env.get(self.SQLITE_DBNAME) or "",
            wait=float(self.env.get(self.LEDGER_WAIT) or DEFAULT_WAIT),
        )


_OPEN: WeakSet[SQLiteLedgerRecorder] = WeakSet()


def _after_fork() -> None:
    for recorder in list(_OPEN):
        recorder.abandon()


os.register_at_fork(after_in_child=_after_fork)
