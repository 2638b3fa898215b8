"""A ledger in one SQLite file: nothing to install, durable before `append` returns.

Commits and checkpoints happen under one lock between processes: SQLite before 3.51.3
can corrupt a WAL that several connections write and checkpoint at once, and its own
lock is not fair. Readers have connections of their own and wait for nobody.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteFactory,
)
from eventsourcing.utils import EnvType

from turnledger.ledger.errors import (
    IntegrityFailureError,
    LedgerClosedError,
    NotALedgerError,
    StoreUnavailableError,
)
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.sql import SQLDerivedReader, catalogue_number
from turnledger.ledger.stores.sqlite.connection import DEFAULT_WAIT, NAP, LedgerDatastore
from turnledger.ledger.stores.sqlite.connection_sqlite_reading import (
    ChangedMeanwhileError,
    IndexMissingError,
)
from turnledger.ledger.stores.sqlite.errors import (
    code_of,
    is_busy,
    is_damage,
    not_opened,
    unavailable,
)
from turnledger.ledger.stores.sqlite.file_lock import FairLock, LifeSign, NoLock
from turnledger.ledger.stores.sqlite.queries import SQLiteRows
from turnledger.ledger.stores.sqlite.schema import (
    SCHEMA_VERSION,
    TABLES,
    format_of,
    make_tables,
    upgrade,
)
from turnledger.ledger.stores.sqlite.transaction import SQLiteLedgerTransaction
from turnledger.ledger.stores.sqlite.wal import cut_wal, distrust_index
from turnledger.ledger.stores.wakeup import Bell

T = TypeVar("T")
# Move the WAL into the database after about this many pages (16 MB): the pages that every
# append touches are then moved once for hundreds of commits.
CHECKPOINT_PAGES = 4000
# Times of commits, not of positions: the latest of the last ones is near enough for `facts`.
NEWEST_RECORDED = """SELECT coalesce(max(recorded_at), 0)
    FROM (SELECT recorded_at FROM events ORDER BY position DESC LIMIT 1000)"""
PAGE_BYTES = 4096
# A commit of one event touches the event, its two indexes, the run's row and their parents.
PAGES_PER_COMMIT = 5
# How often a read is tried again: of a file that is written to where it may be, or damaged.
LOOKS = 30
_NOT_YET_THERE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
# For how many seconds a fork waits for whoever writes in this process.
A_MOMENT = 1.0


class SQLiteLedgerRecorder(SQLiteRows, SQLiteApplicationRecorder):
    """The store over one file."""

    datastore: LedgerDatastore

    def __init__(self, datastore: LedgerDatastore, events_table_name: str = "events") -> None:
        self._path = Path(datastore.path)
        self._folder = Path(f"{self._path}-locks")
        self._read_only = datastore.read_only
        self._lock: NoLock | FairLock = NoLock()
        if not self._read_only:
            self._lock = FairLock(self._folder, datastore.wait)
        super().__init__(datastore, events_table_name)
        self.derived = SQLDerivedReader(self._all)
        self._writer: sqlite3.Connection | None = None
        self._tx: SQLiteLedgerTransaction | None = None
        # Whether this process has the lock, or may have it: it came to ask for it.
        self._inside = False
        self._life: LifeSign | None = None
        self._is_released = False
        # Those who wrote before and died may have left a long WAL: it counts as ours.
        self._unmoved_pages = _size(Path(f"{self._path}-wal")) // PAGE_BYTES
        self._appended = Bell()

    def construct_create_table_statements(self) -> list[str]:
        return list(TABLES)

    def create_table(self) -> None:
        """Make the tables if the file is empty, or those that an older format lacks.

        A file that is something else is refused.
        """
        if self._is_ready():
            return
        if self._read_only:
            raise StoreUnavailableError(
                f"{self._path} was made by an older turnledger, or is empty: it has to be opened "
                "once where it can be written, and can only be read here."
            )
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
            if self._read_only:
                return self._ask(self._looks_ready)
            with closing(self.datastore.connect_bare()) as db:
                return self._looks_ready(db)
        except sqlite3.OperationalError:
            return False  # busy, say; whoever has the lock will see
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._no_database(error) from error
        except (StoreUnavailableError, IntegrityFailureError) as error:
            if is_damage(error) or isinstance(error.__cause__, UnicodeDecodeError):
                raise self._no_database(error.__cause__ or error) from error
            raise

    def _looks_ready(self, db: sqlite3.Connection) -> bool:
        (found,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found == 0 or format_of(db, self._path) != SCHEMA_VERSION:
            return False
        found = db.execute("SELECT value FROM meta WHERE key='catalogue'").fetchone()
        written = catalogue_number(found[0] if found else None)
        return self._read_only or written >= CATALOGUE

    def _no_database(self, error: BaseException) -> NotALedgerError:
        return NotALedgerError(f"{self._path} is not a usable database: {error}")

    # --- writing ---

    def _enter(self) -> None:
        if self._closed:
            raise LedgerClosedError(self._closed)
        if self._read_only:
            raise StoreUnavailableError(
                f"{self._path} can only be read here: its file system is read-only, or this "
                "user may not write there. Nothing was written. Make it writable, open it "
                "again, and append the same events again."
            )
        self._inside = True
        try:
            self._lock.acquire()
        except OSError as error:
            raise not_opened(f"The lock of {self._path}", error) from error
        if self._writer is None:
            self._connect()

    def _connect(self) -> None:
        try:
            self._writer = self.datastore.connect()
        except sqlite3.Error as error:
            raise unavailable(error, "opening the database") from error

    def _transaction(self, *, careful: bool) -> Transaction:
        assert self._writer is not None
        self._tx = SQLiteLedgerTransaction(self._writer, self._heads, self._folder, careful=careful)
        return self._tx

    def _leave(self) -> None:
        if not self._inside:
            return
        db, tx, self._tx = self._writer, self._tx, None
        try:
            if tx is not None and tx.failed and tx.begun:
                self._cut_wal()
            if db is not None and db.in_transaction:
                # Nothing of a broken connection is kept for the next writer.
                self._writer = None
                db.close()
            elif db is not None and tx is not None:
                self._unmoved_pages += PAGES_PER_COMMIT + tx.bytes_written // PAGE_BYTES
                # If there was no room: a WAL that was moved is written from its beginning again.
                if tx.failed or self._unmoved_pages >= CHECKPOINT_PAGES:
                    self._move_wal(db)
        finally:
            self._lock.release()
            self._inside = False
        if self._appended.waiting:
            self._appended.ring()

    @contextmanager
    def _exclusively(self) -> Iterator[sqlite3.Connection]:
        """The writer's connection for something that is no append."""
        with self._turn:
            try:
                self._enter()
                assert self._writer is not None
                yield self._writer
            except sqlite3.Error as error:
                if is_damage(error):
                    raise self._no_database(error) from error
                raise unavailable(error, "opening the database") from error
            finally:
                self._leave()

    def _cut_wal(self) -> None:
        with suppress(OSError):  # then what became of it stays unknown
            cut_wal(self._path)

    def _move_wal(self, db: sqlite3.Connection) -> None:
        """What is in the WAL is safe there: if it can't be moved, that is tried again."""
        self._unmoved_pages = 0
        try:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            if not is_busy(error):
                with suppress(OSError):
                    distrust_index(self._path)

    # --- reading ---

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        try:
            if self._read_only:
                with self.datastore.read_only_connection() as db:
                    yield db
                return
            with self.datastore.reader() as db:
                yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if "decode" in str(error):
                raise IntegrityFailureError(f"{self._path} holds damaged text: {error}") from error
            raise unavailable(error, "reading") from error

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._ask(lambda db: db.execute(statement, values).fetchall())

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        for _ in range(LOOKS):
            try:
                with self._reader() as db:
                    return question(db)
            except StoreUnavailableError as error:
                if not self._may_pass(error):
                    raise
            time.sleep(NAP)
        with self._reader() as db:
            return question(db)

    def _may_pass(self, error: StoreUnavailableError) -> bool:
        """Whether it is likely over in a moment."""
        if isinstance(error, ChangedMeanwhileError | IndexMissingError):
            return True
        # A failing disk took pages back, perhaps, and whoever met that is about to say so. And
        # files beside one that can only be read here come and go, when others open and close it.
        return is_damage(error) or (self._read_only and code_of(error) in _NOT_YET_THERE)

    def wait_for_more(self, position: int, seconds: float) -> None:
        self._appended.wait(seconds)

    def holder(self) -> str:
        with self._turn:
            self._check_open()
            if self._life is None:
                try:
                    self._life = LifeSign(self._folder)
                except OSError as error:
                    raise not_opened(f"The sign of life in {self._folder}", error) from error
            return self._life.name

    @contextmanager
    def _undecoded(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own that gives text as bytes, so that damage can be looked at."""
        self._check_open()
        try:
            with self._alone() as db:
                db.text_factory = bytes
                yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise unavailable(error, "verifying") from error

    def _alone(self) -> AbstractContextManager[sqlite3.Connection]:
        if self._read_only:
            return self.datastore.read_only_connection()
        return closing(self.datastore.connect())

    def max_notification_id(self) -> int | None:  # type: ignore[override]
        highest: int | None = self._all("SELECT max(position) FROM events")[0][0]
        return highest

    def facts(self) -> dict[str, str]:
        def look(db: sqlite3.Connection) -> tuple[dict[str, str], int]:
            pragma = {
                name: str(db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "synchronous", "page_size", "page_count")
            }
            return pragma, db.execute(NEWEST_RECORDED).fetchone()[0]

        pragma, newest = self._ask(look)
        return {
            "store": "sqlite",
            "file": str(self._path.absolute()),
            "locks": str(self._folder.absolute()),
            "access": "read only" if self._read_only else "read and write",
            "sqlite": sqlite3.sqlite_version,
            **pragma,
            "wal_bytes": str(_size(Path(f"{self._path}-wal"))),
            "newest_recorded_at": str(newest),
        }

    # --- the end ---

    def close(self) -> None:
        if self._is_released:
            return
        with self._turn:
            self._closed = self._closed or "This ledger was closed. Open it again."
            try:
                self._release()
            except BaseException:
                # Ctrl-C came just then, as it may: see group_commit.
                self._release()
                raise
        self._appended.ring()

    def _release(self) -> None:
        """Let go of everything. May be repeated."""
        if not self._lock.is_closed:
            self._rest()
        self.datastore.close()
        if self._life is not None:
            self._life.close()
        self._lock.close()
        self._is_released = True

    def _rest(self) -> None:
        """Close the connections that nobody is using. May be repeated."""
        try:
            # Closing the last connection moves the WAL: under the lock, like any commit. If
            # others are writing just now, this connection is not the last one.
            locked = self._lock.acquire_at_once()
            writer, self._writer = self._writer, None
            if writer is not None and locked:
                self._move_wal(writer)
            self.datastore.rest()
            if writer is not None:
                writer.close()
        finally:
            self._lock.release()

    def rest(self) -> None:
        if not self._read_only and self._turn.acquire(timeout=A_MOMENT):
            try:
                self._rest()
            finally:
                self._turn.release()

    def abandon(self) -> None:
        super().abandon()
        self._is_released = True
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
    LEDGER_READ_ONLY = "LEDGER_READ_ONLY"
    application_recorder_class: type[SQLiteApplicationRecorder] = SQLiteLedgerRecorder

    def __init__(self, env: EnvType) -> None:
        super().__init__(env)
        self.datastore: LedgerDatastore = LedgerDatastore(
            self.env.get(self.SQLITE_DBNAME) or "",
            wait=float(self.env.get(self.LEDGER_WAIT) or DEFAULT_WAIT),
            read_only=bool(self.env.get(self.LEDGER_READ_ONLY)),
        )

    def application_recorder(self) -> SQLiteLedgerRecorder:
        recorder = SQLiteLedgerRecorder(self.datastore)
        try:
            recorder.create_table()
        except BaseException:
            recorder.close()
            raise
        return recorder
