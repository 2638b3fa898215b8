"""SQLite store, the default: one file in WAL mode, durable before `append` returns.

Commits and checkpoints happen under one lock between processes (`file_lock.py`): SQLite before
3.51.3 can corrupt a WAL that several connections write and checkpoint at once, and its own lock
is not fair. Readers have connections of their own and wait for no writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from turnledger.ledger.errors import (
    IntegrityFailureError,
    LedgerClosedError,
    NotALedgerError,
    StoreUnavailableError,
)
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.runs.record import Columns, RawRow, as_raw_row
from turnledger.ledger.runs.transaction import Transaction
from turnledger.ledger.stores.sql import ROW, SQLStore, catalogue_number
from turnledger.ledger.stores.sqlite.connection import ConnectionPool
from turnledger.ledger.stores.sqlite.errors import (
    code_of,
    is_busy,
    is_damage,
    not_opened,
    unavailable,
)
from turnledger.ledger.stores.sqlite.file_lock import FairLock, LivenessFile, NoLock
from turnledger.ledger.stores.sqlite.queries import Queries
from turnledger.ledger.stores.sqlite.schema import (
    END_OF_ID,
    OLDEST_READABLE,
    RAW_ROW,
    SCHEMA_VERSION,
    TOKENS_SINCE,
    as_text,
    changed_schema,
    format_of,
    make_tables,
    stored_bytes,
    upgrade,
)
from turnledger.ledger.stores.sqlite.transaction import SQLiteTransaction
from turnledger.ledger.stores.sqlite.wal import (
    OpenFiles,
    invalidate_index,
    invalidate_wal_tail,
)

# Checkpoint (move the WAL into the database) after about this many pages (16 MB): the pages that
# every append touches are then moved once for hundreds of commits.
CHECKPOINT_PAGES = 4000
PAGE_BYTES = 4096
# A commit of one event touches the event, its two indexes, the run's row and their parents.
PAGES_PER_COMMIT = 5
# How many of its findings SQLite's integrity check is asked for.
FINDINGS = 20
# A file in the folder of locks: the ledger was made, so it is never made again in an empty file.
MADE = "made"
# For how many seconds a fork waits for a writing thread of this process.
FORK_WAIT = 1.0
# Positions follow the order of commits, and clocks go backwards: the latest time of the last
# thousand events is near enough for `diagnostics`.
NEWEST_RECORDED = """SELECT coalesce(max(recorded_at), 0)
    FROM (SELECT recorded_at FROM events ORDER BY position DESC LIMIT 1000)"""
LAST_RECORD = "SELECT position, digest FROM events ORDER BY position DESC LIMIT 1"


class SQLiteStore(SQLStore):
    """The store over one file. `open` makes the tables where they are missing."""

    _end_of_id = END_OF_ID

    def __init__(
        self, path: Path, *, wait: float, read_only: bool = False, check_file: bool = True
    ) -> None:
        self._path = path
        self._folder = Path(f"{path}-locks")
        self._read_only = read_only
        self.pool = ConnectionPool(str(path), wait=wait, read_only=read_only)
        # Of a file that is only read nothing is acknowledged.
        self._files = OpenFiles(str(path), is_checked=check_file and not read_only)
        self.pool.check_file = self._files.check_file
        self._queries = Queries(self.pool, self._check_open)
        self._lock: NoLock | FairLock = NoLock()
        if not read_only:
            self._lock = FairLock(self._folder, wait)
        super().__init__()
        # The one connection that writes; kept from commit to commit.
        self._writer: sqlite3.Connection | None = None
        # Its transactions, and whether there was one in this group.
        self._tx: SQLiteTransaction | None = None
        self._has_begun = False
        # Whether this process holds the lock, or may hold it: it has begun to ask for it.
        self._may_hold_lock = False
        self._liveness: LivenessFile | None = None
        self._is_released = False
        # A process that wrote before and died may have left a long WAL: it counts as ours.
        self._pages_in_wal = file_size(Path(f"{path}-wal")) // PAGE_BYTES

    @classmethod
    def open(
        cls, path: Path, *, wait: float, read_only: bool = False, check_file: bool = True
    ) -> Self:
        """The store at a path where a file exists; an empty one becomes a ledger.

        Args:
            path: The file; its locks are in the folder `PATH-locks` beside it.
            wait: Seconds to wait for other writers.
            read_only: Write nothing, not even files beside it.
            check_file: Check after each commit that the path still names the file that was opened.
        """
        store = cls(path, wait=wait, read_only=read_only, check_file=check_file)
        try:
            store.check_wal()
            store.prepare()
        except BaseException:
            store.close()
            raise
        return store

    def check_wal(self) -> None:
        """Refuse a WAL that belongs to another file than the one that it is beside.

        SQLite would combine the pages of both: records vanish, and all digests may still fit.
        """
        if self._read_only or file_size(Path(f"{self._path}-wal")) == 0 or self._fits_wal():
            return
        # Another process may just have been moving the WAL into the file. Not so under the lock.
        with self._write_lock:
            try:
                self._take_lock()
                fits = self._fits_wal()
            finally:
                self._lock.release()
                self._may_hold_lock = False
        if not fits:
            raise NotALedgerError(
                f"{self._path}-wal does not belong to {self._path}: the last record of the file is "
                "not in the ledger that both make together. One of them was replaced. They are "
                "left as they were: put back the file or the WAL that belongs to it, or go on "
                "from a backup or an export."
            )

    def _fits_wal(self) -> bool:
        """Whether the file's last record without the WAL is there with the WAL, too."""
        # Both read-only: closing a connection that can write would move the WAL into the file.
        # The first one has to be open meanwhile, or another process could do that on closing.
        try:
            with closing(self.pool.connect_bare("mode=ro")) as db:
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                with closing(self.pool.connect_bare("mode=ro&immutable=1")) as file:
                    last = _last_record(file)
                if last is None:
                    return True
                position, digest = last
                found = db.execute("SELECT digest FROM events WHERE position=?", (position,))
                return bool(found.fetchone() == (digest,))
        except sqlite3.DatabaseError as error:
            if is_damage(error) or code_of(error) == sqlite3.SQLITE_ERROR:
                return False  # pages of two files don't make a database
            raise unavailable(error, "opening the database") from error

    def prepare(self) -> None:
        """Make the tables of a new ledger; refuse a file that is something else."""
        if self._is_ready():
            self._note_made()
            return
        if self._read_only:
            raise StoreUnavailableError(
                f"{self._path} was made by an older turnledger, or is empty: it has to be opened "
                "once where it can be written, and can only be read here."
            )
        with self._exclusively() as db:
            (found,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            # A database without tables may be what is left of a ledger without its WAL.
            if found == 0 and not (self._folder / MADE).exists():
                make_tables(db)
            upgrade(db, format_of(db, self._path))
            self.has_tokens = True
            db.execute(
                "UPDATE meta SET value=? WHERE key='catalogue' AND CAST(value AS INTEGER) < ?",
                (str(CATALOGUE), CATALOGUE),
            )
        self._note_made()

    def _note_made(self) -> None:
        """Note that there is a ledger: from now on, an empty file in its place was cut."""
        self._files.is_made = True
        if not self._read_only:
            with suppress(OSError):  # then the next process that opens it does
                (self._folder / MADE).touch(self._folder.stat().st_mode & 0o666)

    def _is_ready(self) -> bool:
        """Whether nothing is to be written. Sets nothing, so that other files stay as they are."""
        try:
            if self._read_only:
                return self._queries.ask(self._looks_ready)
            with closing(self.pool.connect_bare()) as db:
                return self._looks_ready(db)
        except sqlite3.OperationalError:
            return False  # busy, for example: it is looked at again under the lock
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._no_database(error) from error
        except (StoreUnavailableError, IntegrityFailureError) as error:
            if is_damage(error) or isinstance(error.__cause__, UnicodeDecodeError):
                raise self._no_database(error.__cause__ or error) from error
            raise

    def _looks_ready(self, db: sqlite3.Connection) -> bool:
        (found,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found == 0:
            return False
        version = format_of(db, self._path)
        if version < (OLDEST_READABLE if self._read_only else SCHEMA_VERSION):
            return False
        self.has_tokens = version >= TOKENS_SINCE
        found = db.execute("SELECT value FROM meta WHERE key='catalogue'").fetchone()
        written = catalogue_number(found[0] if found else None)
        return self._read_only or written >= CATALOGUE

    def _no_database(self, error: BaseException) -> NotALedgerError:
        return NotALedgerError(f"{self._path} is not a usable database: {error}")

    # --- writing ---

    def _begin_group(self) -> None:
        if self._closed:
            raise LedgerClosedError(self._closed)
        if self._read_only:
            raise StoreUnavailableError(
                f"{self._path} can only be read here: its file system is read-only, or this "
                "user may not write there. Nothing was written. Make it writable, open it "
                "again, and append the same events again."
            )
        if self._files.lost:
            raise StoreUnavailableError(self._files.lost)
        self._take_lock()
        if self._tx is None:
            self._connect()

    def _take_lock(self) -> None:
        self._may_hold_lock = True
        try:
            self._lock.acquire()
        except OSError as error:
            raise not_opened(f"The lock of {self._path}", error) from error

    def _connect(self) -> None:
        try:
            self._writer = self.pool.connect()
        except sqlite3.Error as error:
            raise unavailable(error, "opening the database") from error
        self._files.connected()
        self._tx = SQLiteTransaction(self._writer, self._heads, self._folder, self._files)

    def _transaction(self, *, careful: bool) -> Transaction:
        tx = self._tx
        assert tx is not None
        self._has_begun, tx.begun, tx.careful = True, False, careful
        return tx

    def _end_group(self) -> None:
        if not self._may_hold_lock:
            return
        db, tx = self._writer, self._tx if self._has_begun else None
        try:
            failed = tx is not None and (tx.executor.failed or tx.derived.failed)
            # Before the lock is free: the next writer would append behind what a failed commit
            # left at the end of the WAL.
            if tx is not None and failed and tx.begun:
                self._undo_in_wal()
            if db is not None and db.in_transaction:
                # Nothing of a broken connection is kept for the next writer.
                self._writer = self._tx = None
                db.close()
            elif db is not None and tx is not None:
                written = tx.bytes_written + tx.derived.bytes_written
                self._pages_in_wal += PAGES_PER_COMMIT + written // PAGE_BYTES
                # After a failure, too: a WAL that was moved is written from its beginning again,
                # which makes room on a full disk.
                if failed or self._pages_in_wal >= CHECKPOINT_PAGES:
                    self._checkpoint(db)
        finally:
            self._lock.release()
            self._may_hold_lock = self._has_begun = False
        if self._appended.waiting:
            self._appended.wake_all()

    @contextmanager
    def _exclusively(self) -> Iterator[sqlite3.Connection]:
        """The writer's connection, under the lock, for something other than appends."""
        with self._write_lock:
            try:
                self._begin_group()
                assert self._writer is not None
                yield self._writer
            except sqlite3.Error as error:
                if is_damage(error):
                    raise self._no_database(error) from error
                raise unavailable(error, "opening the database") from error
            finally:
                self._end_group()

    def _undo_in_wal(self) -> None:
        with suppress(OSError):  # then the outcome of the commit stays unknown
            if self._files.are_ours():
                invalidate_wal_tail(self._path)

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        """Move the WAL into the database. If that fails, it is safe in the WAL until next time."""
        self._pages_in_wal = 0
        if self._files.lost:
            return
        try:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            if not is_busy(error):
                with suppress(OSError):
                    if self._files.are_ours():
                        invalidate_index(self._path)

    # --- reading ---

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._queries.all(statement, values)

    def _as_found(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._queries.all_lenient(statement, values)

    def rows_after(self, position: int, limit: int, until: int | None = None) -> list[Columns]:
        # Without an end no condition: in a damaged file a position may be text, which is higher
        # than every number, and its reader has to be told.
        end, values = ("", ()) if until is None else ("AND position<=?", (until,))
        return self._queries.all_lenient(
            f"SELECT {ROW} FROM events WHERE position>? {end} ORDER BY position LIMIT ?",
            (position, *values, limit),
        )

    def rows_before(self, position: int, limit: int) -> list[Columns]:
        return self._as_found(
            f"SELECT {ROW} FROM events WHERE position<? ORDER BY position DESC LIMIT ?",
            (position, limit),
        )

    def raw_run_ids(self) -> Iterator[Any]:
        with self._queries.undecoded() as db:
            yield from db.execute(
                f"SELECT {as_text('run_id')}, count(*) FROM events GROUP BY run_id"
            )

    def raw_rows(self, run_id: Any, first: int | None = None) -> Iterator[RawRow]:
        which, values = "run_id=CAST(? AS TEXT)", [run_id]
        if (stored := stored_bytes(run_id)) is not None:
            which, values = "run_id IN (CAST(? AS TEXT), ?)", [run_id, stored]
        if first is not None:
            which, values = f"{which} AND version>=?", [*values, first]
        with self._queries.undecoded() as db:
            found = db.execute(
                f"SELECT {RAW_ROW} FROM events WHERE {which} ORDER BY version", values
            )
            yield from map(as_raw_row, found)

    def raw_tags(self) -> Iterator[tuple[Any, Any, Any]]:
        columns = ", ".join(map(as_text, ("run_id", "key", "value")))
        with self._queries.undecoded() as db:
            yield from db.execute(f"SELECT {columns} FROM run_tags")

    def own_findings(self) -> Iterator[str]:
        with self._queries.undecoded() as db:
            yield from changed_schema(db)
        # Also indexes that differ from their tables: a reader that goes by them misses rows.
        with self._queries.undecoded() as db:
            for (found,) in db.execute(f"PRAGMA integrity_check({FINDINGS})"):
                if found != b"ok":
                    yield found.decode("utf-8", "backslashreplace")

    def last_position(self) -> int | None:
        highest: int | None = self._all("SELECT max(position) FROM events")[0][0]
        return highest

    def holder(self) -> str:
        with self._write_lock:
            self._check_open()
            if self._liveness is None:
                try:
                    self._liveness = LivenessFile(self._folder)
                except OSError as error:
                    raise not_opened(f"The liveness file in {self._folder}", error) from error
            return self._liveness.name

    def diagnostics(self) -> dict[str, str]:
        def look(db: sqlite3.Connection) -> tuple[dict[str, str], int]:
            pragma = {
                name: str(db.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "synchronous", "page_size", "page_count")
            }
            return pragma, db.execute(NEWEST_RECORDED).fetchone()[0]

        pragma, newest = self._queries.ask(look)
        return {
            "store": "sqlite",
            "file": str(self._path.absolute()),
            "locks": str(self._folder.absolute()),
            "access": "read only" if self._read_only else "read and write",
            "file_check": "on" if self._files.is_checked or self._read_only else "off",
            "sqlite": sqlite3.sqlite_version,
            **pragma,
            "wal_bytes": str(file_size(Path(f"{self._path}-wal"))),
            "newest_recorded_at": str(newest),
        }

    # --- the end ---

    def close(self) -> None:
        if self._is_released:
            return
        with self._write_lock:
            self._closed = self._closed or "This ledger was closed. Open it again."
            try:
                self._release()
            except BaseException:
                # An interrupt came just then: it may be repeated (see group_commit.py).
                self._release()
                raise
        self._appended.wake_all()

    def _release(self) -> None:
        """Close connections, locks and liveness file. May be repeated."""
        if not self._lock.is_closed:
            self._close_connections()
        self.pool.close()
        if self._liveness is not None:
            self._liveness.close()
        self._lock.close()
        self._is_released = True

    def _close_connections(self) -> None:
        """Close the connections that no thread is using. May be repeated."""
        try:
            # Closing the last connection is a checkpoint: under the lock, like any commit. If
            # another process is writing just now, this connection is not the last one.
            locked = self._lock.acquire_at_once()
            writer, self._writer, self._tx = self._writer, None, None
            if writer is not None and locked:
                self._checkpoint(writer)
            self.pool.close_idle()
            if writer is not None:
                writer.close()
        finally:
            self._lock.release()

    def before_fork(self) -> None:
        if not self._read_only and self._write_lock.acquire(timeout=FORK_WAIT):
            try:
                self._close_connections()
            finally:
                self._write_lock.release()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self._is_released = True
        self._lock.forget()
        if self._liveness is not None:
            self._liveness.forget()


def _last_record(db: sqlite3.Connection) -> tuple[int, bytes] | None:
    """Position and digest of the last record; None if there is none, or it can't be read.

    Without its WAL a file may be damaged: a checkpoint that was interrupted has moved a part.
    """
    with suppress(sqlite3.DatabaseError):
        found = db.execute(LAST_RECORD).fetchone()
        if found is not None and isinstance(found[0], int) and isinstance(found[1], bytes):
            return found[0], found[1]
    return None


def file_size(path: Path) -> int:
    """A file's size in bytes; 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
