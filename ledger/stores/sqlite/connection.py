"""SQLite connections: a pool of readers, durable settings, read-only files, and forks.

Every connection to a ledger's file is made here. There is no lock around the pool: Ctrl-C in a
moment in which a thread holds one would lose a place for good, and a pool that closes connections
in which other threads are reading ends the interpreter.

Forks: SQLite keeps a table of the files that this process has locked. A forked child has a copy
of that table and none of the locks. If a connection was open at the fork, another one to the same
file would rely in the child on locks that are the parent's, and both would lose what they wrote.
So a child that finds such a file refuses to open it, and closes no connection of its parent's.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote
from weakref import ref

from turnledger.ledger.errors import StoreBusyError, StoreUnavailableError
from turnledger.ledger.stores.sqlite.errors import code_of

# How many idle connections are kept for the next reader.
IDLE_READERS = 8
RETRY_SECONDS = 0.001

# --- forks ---

# Open connections, with the device and inode of their files, by id. Not a weak set: its callback,
# which runs when a connection is collected, is a place where Ctrl-C gets lost.
_open: dict[int, tuple[ref[Connection], tuple[int, int]]] = {}
# Descriptors of the WAL's index that wal.py opened, by the device and inode of the ledger's file.
# POSIX locks belong to a process and a file: closing any descriptor of the index would free all
# locks that SQLite has on it in this process. So they stay open as long as a connection does.
_indexes: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
# Held for a few statements by a thread that registers a connection, or closes such descriptors.
_registering = Lock()
# Files whose WAL must not be moved into them when the last connection is closed.
_left: set[tuple[int, int]] = set()
# In a child: references that are kept for ever, because a connection that is collected is closed.
_of_parent: list[Connection] = []
# In a child: the files that the parent had open, by device and inode.
_open_at_fork: set[tuple[int, int]] = set()


class Connection(sqlite3.Connection):
    """A SQLite connection that knows its process, and closes itself when collected.

    An interrupt can come between the moment in which a connection is open and the one in which
    the caller could note it, so that no `finally` ever closes it. `__del__` does. It is a function
    in C, and there is no `__init__` in Python: an interrupt in the one would be lost, and one at
    the beginning of the other would leave what can't be closed. `_open_connection` makes them.
    """

    process = 0
    __del__ = sqlite3.Connection.close

    def close(self) -> None:
        # In a child, closing would write to the parent's file without having its locks.
        if self.process == os.getpid():
            _, file = _open.get(id(self), (None, None))
            if file in _left:
                self.interrupt()  # ends the checkpoint of a last connection before it writes
            super().close()
            _open.pop(id(self), None)
            if file in _indexes:
                _close_indexes(file)


def _open_connection(path: str, uri: str, wait: float) -> Connection:
    # First to nowhere, so that it is registered before it opens the file: no open connection is
    # ever missing at a fork. For any thread: the collector that closes it runs in whichever.
    db = Connection(":memory:", check_same_thread=False)
    with _registering:
        _open[id(db)] = ref(db), _file_number(path)
    try:
        sqlite3.Connection.__init__(
            db,
            uri,
            uri=True,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=256,
            timeout=wait,
        )
    except BaseException:
        # What could not be opened can't be closed either; back to where it can.
        sqlite3.Connection.__init__(db, ":memory:", check_same_thread=False)
        _open.pop(id(db), None)
        raise
    db.process = os.getpid()  # not before: `__init__` clears all attributes
    return db


def keep_index_open(path: Path) -> int:
    """A descriptor of the WAL's index, which is closed with the last connection to the ledger."""
    index = Path(f"{path}-shm")
    found = index.stat()
    _close_deleted()
    kept = _indexes.setdefault(_file_number(str(path)), {})
    file = kept.get((found.st_dev, found.st_ino))
    if file is None:
        file = os.open(index, os.O_RDWR | os.O_CLOEXEC)
        kept[found.st_dev, found.st_ino] = file
    return file


def _close_indexes(ledger: tuple[int, int]) -> None:
    """Close the descriptors of a ledger's indexes, if this process has no connection to it."""
    with _registering:
        connections = [of for of, file in list(_open.values()) if file == ledger]
        if not any(of() is not None for of in connections):
            for file in _indexes.pop(ledger, {}).values():
                os.close(file)


def _close_deleted() -> None:
    """Close indexes that were deleted, as one is with the last connection to the ledger.

    SQLite has no locks on them any more, and they take room on the disk until they are closed.
    """
    for kept in list(_indexes.values()):
        for number, file in list(kept.items()):
            if os.fstat(file).st_nlink == 0 and kept.pop(number, None) is not None:
                os.close(file)


def leave_wal(ledger: tuple[int, int]) -> None:
    """From now on, close connections to a file without moving its WAL into it."""
    _left.add(ledger)


def _refuse_shared_with_parent(path: str) -> None:
    """Refuse a file that was open in the parent process at the moment of the fork."""
    if _open_at_fork and _file_number(path) in _open_at_fork:
        raise StoreUnavailableError(
            f"{path} was in use in the process that forked this one, in the very moment of the "
            "fork, and SQLite can't open it here any more. Nothing was written. Fork while no "
            "other thread uses the ledger, or start a new process (multiprocessing's spawn)."
        )


def _file_number(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _after_fork_in_child() -> None:
    global _registering
    _registering = Lock()  # a thread of the parent may have held it
    for reference, file in list(_open.values()):
        connection = reference()
        if connection is not None:
            _of_parent.append(connection)
            _open_at_fork.add(file)


os.register_at_fork(after_in_child=_after_fork_in_child)


# --- connections of one ledger ---


class ConnectionPool:
    """The connections of one open ledger to its file: a few idle readers, made when needed."""

    def __init__(self, path: str, *, wait: float, read_only: bool = False) -> None:
        self.path = path
        self.wait = wait
        self.read_only = read_only
        # Raises if the path names another file than the one that was opened.
        self.check_file: Callable[[], None] = lambda: None
        # `append` and `pop` of a deque are atomic: it needs no lock.
        self._idle: deque[Connection] = deque()
        self._is_closed = False

    def connect_bare(self, options: str = "mode=rw") -> Connection:
        """A connection that has set nothing, to see what the file is."""
        _refuse_shared_with_parent(self.path)
        self.check_file()
        # By URI, so that no name is misread and nothing is created by accident.
        uri = f"file:{quote(os.fsencode(self.path))}?{options}"
        return _open_connection(self.path, uri, self.wait)

    def connect(self) -> Connection:
        """A connection that is as durable as the ledger promises, and never checkpoints alone."""
        db = self.connect_bare()
        try:
            self._switch_to_wal(db)
            db.execute("PRAGMA synchronous=FULL")
            # A checkpoint by SQLite itself would happen outside of the lock between processes.
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute("PRAGMA foreign_keys=OFF")
            # A schema that another program changed is data: nothing in it may run functions.
            db.execute("PRAGMA trusted_schema=OFF")
        except BaseException:
            db.close()
            raise
        return db

    def _switch_to_wal(self, db: sqlite3.Connection) -> None:
        """Set WAL mode, with retries: SQLite's own timeout does not cover this statement.

        It is busy, for example, while another process rolls back what a killed one left.
        """
        deadline = time.monotonic() + self.wait
        while True:
            try:
                # To the last row: the switch is committed only then, and may fail.
                ((mode,),) = db.execute("PRAGMA journal_mode=WAL").fetchall()
                break
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)
        if mode != "wal":
            raise sqlite3.OperationalError(f"the journal mode stays {mode!r} instead of WAL")

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A connection for one read; only the thread that reads with it ever closes it."""
        try:
            db = self._idle.pop()
        except IndexError:
            db = self.connect()
        try:
            yield db
        except BaseException:
            db.close()  # with whatever it was in the middle of
            raise
        if len(self._idle) < IDLE_READERS:
            self._idle.append(db)
        else:
            db.close()
        # The pool may have been closed after the line above put this one back.
        if self._is_closed:
            self.close_idle()

    @contextmanager
    def read_only_connection(self) -> Iterator[Connection]:
        """A connection for one read that writes nothing, not even files beside the ledger's.

        For a read-only mount or another user's folder. SQLite reads a file in WAL mode only with
        its index (`-shm`), or when it is told that the file never changes (`immutable`). It may
        change: other users can have the same folder writable. So what was read as immutable
        counts only if the files were the same before and after.
        """
        path = self.path
        before = _files(path)
        wal, index = before[1], before[2]
        if wal is not None and index is not None:
            # Another process has the ledger open, or was killed: SQLite reads the WAL, and copes
            # with an index that it may not change.
            with closing(self.connect_bare("mode=ro")) as db:
                yield db
            return
        if wal is not None and wal.size > 0:
            raise IndexMissingError(
                f"{path} can only be read here, and not without writing: the last commits are in "
                f"{path}-wal, and the index {path}-shm is missing. Copy {path} and {path}-wal to "
                "where you can write, and open the copy."
            )
        # No WAL: everything is in the file itself.
        try:
            with closing(self.connect_bare("mode=ro&immutable=1")) as db:
                yield db
        except sqlite3.DatabaseError:
            _check_unchanged(path, before)
            raise
        _check_unchanged(path, before)

    def close_idle(self) -> None:
        """Close the connections that no thread is using."""
        while True:
            try:
                db = self._idle.pop()
            except IndexError:
                return
            db.close()

    def close(self) -> None:
        """Close idle connections now; readers under way close theirs when they are done."""
        self._is_closed = True
        self.close_idle()


# --- files that can only be read ---


class ChangedMeanwhileError(StoreBusyError):
    """A file that was read as immutable was written to meanwhile."""


class IndexMissingError(StoreUnavailableError):
    """The WAL has no index; for a moment that is so when a process closes the ledger elsewhere."""


class _File(NamedTuple):
    """A file's identity and age: another value if it was replaced or written to."""

    inode: int
    size: int
    modified: int
    changed: int


def _files(path: str) -> tuple[_File | None, _File | None, bool | None]:
    """The database, its WAL, and whether it has an index, whose content changes with readers."""
    index = _file(f"{path}-shm")
    return _file(path), _file(f"{path}-wal"), None if index is None else True


def _check_unchanged(path: str, before: tuple[_File | None, _File | None, bool | None]) -> None:
    if _files(path) != before:
        raise ChangedMeanwhileError(
            f"{path} was written to while it was being read from where it is read-only. Try again."
        )


def _file(path: str) -> _File | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return _File(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
