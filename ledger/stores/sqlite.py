"""A ledger in one SQLite file: nothing to install, durable before `append` returns.

Commits and checkpoints happen under one lock between processes: SQLite before 3.51.3
can corrupt a WAL that several connections write and checkpoint at once, and its own
lock is not fair. Readers have connections of their own and wait for nobody.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Condition, Lock
from typing import Any

from eventsourcing.domain import EventSourcingError
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteFactory,
)
from eventsourcing.utils import EnvType

from ledger.errors import (
    IntegrityFailureError,
    LedgerClosedError,
    NotALedgerError,
)
from ledger.events import CATALOGUE
from ledger.recorder import RunQuery
from ledger.rows import RawRow, Row
from ledger.run_index import RunRow
from ledger.stores.file_lock import FairLock, LifeSign
from ledger.stores.run_conditions import run_conditions
from ledger.stores.sqlite_connection import DEFAULT_WAIT, LedgerDatastore, unavailable
from ledger.stores.sqlite_schema import (
    RAW_ROW,
    ROW,
    RUN,
    SCHEMA_VERSION,
    TABLES,
    format_of,
    make_tables,
    upgrade,
)
from ledger.stores.sqlite_shelves import SQLiteShelves
from ledger.stores.sqlite_transaction import SQLiteLedgerTransaction
from ledger.transaction import Lease, Transaction

# Move the WAL into the database after about this many pages (16 MB): the pages that every
# append touches are then moved once for hundreds of commits.
CHECKPOINT_PAGES = 4000
PAGE_BYTES = 4096
# A commit of one event touches the event, its two indexes, the run's row and their parents.
PAGES_PER_COMMIT = 5
# Connections that a forked child came by: kept, because SQLite must not close them there.
_THE_PARENTS: list[tuple[sqlite3.Connection | None, LedgerDatastore]] = []


class SQLiteLedgerRecorder(SQLiteShelves, SQLiteApplicationRecorder):
    """The store over one file."""

    datastore: LedgerDatastore

    def __init__(self, datastore: LedgerDatastore, events_table_name: str = "events") -> None:
        super().__init__(datastore, events_table_name)
        self._path = Path(datastore.pool.db_name)
        self._folder = Path(f"{self._path}-locks")
        self._lock = FairLock(self._folder, datastore.wait)
        self._writer: sqlite3.Connection | None = None
        self._tx: SQLiteLedgerTransaction | None = None
        # Closing and making tables keep out the threads of this process like any writer;
        # the lock between processes does not tell threads apart.
        self._busy = Lock()
        self._life: LifeSign | None = None
        # Those who wrote before and died may have left a long WAL: it counts as ours.
        self._unmoved_pages = _size(Path(f"{self._path}-wal")) // PAGE_BYTES
        self._appended = Condition()
        self._followers = 0

    def construct_create_table_statements(self) -> list[str]:
        return list(TABLES)

    def create_table(self) -> None:
        """Make the tables if the file is empty, or those that an older format lacks.

        A file that is something else is refused.
        """
        if self._is_ready():
            return
        with self._exclusively() as db:
            (found,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if found == 0:
                make_tables(db)
            upgrade(db, format_of(db, self._path))
            db.execute(
                "UPDATE meta SET value=? WHERE key='catalogue' AND CAST(value AS INTEGER) < ?",
                (str(CATALOGUE), CATALOGUE),
            )

    def _is_ready(self) -> bool:
        """Whether there is nothing to write: opening does not wait for writers then.

        Looks without setting anything, so that a file that is no ledger stays as it is.
        """
        try:
            with closing(self.datastore.look()) as db:
                (found,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if found == 0:
                    return False
                if format_of(db, self._path) != SCHEMA_VERSION:
                    return False
                (written,) = db.execute("SELECT value FROM meta WHERE key='catalogue'").fetchone()
                return int(written) >= CATALOGUE
        except sqlite3.OperationalError:
            return False  # busy, say; whoever has the lock will see
        except sqlite3.DatabaseError as error:
            raise NotALedgerError(f"{self._path} is not a usable database: {error}") from error

    # --- writing ---

    def _enter(self) -> None:
        self._busy.acquire()
        try:
            if self._closed:
                raise LedgerClosedError(self._closed)
            if not self._lock.acquire_at_once():
                self._lock.acquire_in_line()
            if self._writer is None:
                self._connect()
        except BaseException:
            self._busy.release()
            raise

    def _connect(self) -> None:
        try:
            self._writer = self.datastore.connect()
        except sqlite3.Error as error:
            self._lock.release()
            raise unavailable(error, "opening the database") from error

    def _transaction(self, *, careful: bool) -> Transaction:
        assert self._writer is not None
        self._tx = SQLiteLedgerTransaction(self._writer, self._heads, self._folder, careful=careful)
        return self._tx

    def _leave(self) -> None:
        db, tx, self._tx = self._writer, self._tx, None
        try:
            if db is not None and db.in_transaction:
                # Nothing of a broken connection is kept for the next writer.
                self._writer = None
                db.close()
            elif db is not None and tx is not None:
                self._unmoved_pages += PAGES_PER_COMMIT + tx.bytes_written // PAGE_BYTES
                if self._unmoved_pages >= CHECKPOINT_PAGES:
                    self._move_wal(db)
        finally:
            self._lock.release()
            self._busy.release()
        if self._followers:
            with self._appended:
                self._appended.notify_all()

    @contextmanager
    def _exclusively(self) -> Iterator[sqlite3.Connection]:
        """The writer's connection for something that is no append."""
        self._enter()
        try:
            assert self._writer is not None
            yield self._writer
        except sqlite3.Error as error:
            if "not a database" in str(error) or "malformed" in str(error):
                raise NotALedgerError(f"{self._path} is not a usable database: {error}") from error
            raise unavailable(error, "opening the database") from error
        finally:
            self._leave()

    def _move_wal(self, db: sqlite3.Connection) -> None:
        self._unmoved_pages = 0
        with suppress(sqlite3.Error):  # what is in the WAL is safe there; it is tried again
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # --- reading ---

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        try:
            with self.datastore.get_connection(commit=False) as connection:
                yield connection._sqlite_conn
        except (sqlite3.Error, EventSourcingError) as error:
            self._check_open()  # closed in the middle of it
            if "decode" in str(error):
                raise IntegrityFailureError(f"{self._path} holds damaged text: {error}") from error
            raise unavailable(error, "reading") from error

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
            self._followers += 1
            self._appended.wait(seconds)
            self._followers -= 1

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
        with self._busy:
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
                f"SELECT {RAW_ROW} FROM events WHERE run_id=CAST(? AS TEXT) ORDER BY version",
                (run_id,),
            )

    @contextmanager
    def _undecoded(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own that gives text as bytes, so that damage can be looked at."""
        self._check_open()
        try:
            with closing(self.datastore.connect()) as db:
                db.text_factory = bytes
                yield db
        except sqlite3.Error as error:
            raise unavailable(error, "verifying") from error

    def max_notification_id(self) -> int | None:  # type: ignore[override]
        highest: int | None = self._all("SELECT max(position) FROM events")[0][0]
        return highest

    def facts(self) -> dict[str, str]:
        with self._reader() as db:
            pragma = {
                name: str(db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "synchronous", "page_size", "page_count")
            }
        return {
            "store": "sqlite",
            "file": str(self._path.absolute()),
            "sqlite": sqlite3.sqlite_version,
            **pragma,
            "wal_bytes": str(_size(Path(f"{self._path}-wal"))),
        }

    # --- the end ---

    def close(self) -> None:
        if self._closed:
            return
        with self._busy:
            if not self._closed:
                self._closed = "This ledger was closed. Open it again."
                self._close()
        with self._appended:
            self._appended.notify_all()

    def _close(self) -> None:
        # Closing the last connection moves the WAL: under the lock, like any commit. If others
        # are writing just now, this connection is not the last one.
        locked = self._lock.acquire_at_once()
        try:
            if self._writer is not None and locked:
                self._move_wal(self._writer)
            self.datastore.close()
            if self._writer is not None:
                self._writer.close()
            if self._life is not None:
                self._life.close()
        finally:
            if locked:
                self._lock.release()
            self._lock.close()

    def abandon(self) -> None:
        super().abandon()
        _THE_PARENTS.append((self._writer, self.datastore))
        self._lock.forget()
        if self._life is not None:
            self._life.forget()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class SQLiteLedgerFactory(SQLiteFactory):
    """Builds the store the way the library builds its own, from an environment."""

    LEDGER_WAIT = "LEDGER_WAIT"
    application_recorder_class: type[SQLiteApplicationRecorder] = SQLiteLedgerRecorder

    def __init__(self, env: EnvType) -> None:
        super().__init__(env)
        self.datastore: LedgerDatastore = LedgerDatastore(
            self.env.get(self.SQLITE_DBNAME) or "",
            wait=float(self.env.get(self.LEDGER_WAIT) or DEFAULT_WAIT),
        )

    def application_recorder(self) -> SQLiteLedgerRecorder:
        recorder = SQLiteLedgerRecorder(self.datastore)
        try:
            recorder.create_table()
        except BaseException:
            recorder.close()
            raise
        return recorder
