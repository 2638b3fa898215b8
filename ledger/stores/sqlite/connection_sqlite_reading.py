"""Reading a ledger where nothing can be written: a read-only mount, another user's folder.

SQLite reads a file in WAL mode only with its index (`-shm`), or if it is told that the file
never changes (`immutable`). It may: others can have the same folder writable. So what was
read as immutable counts only if the files were the same before and after.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from turnledger.ledger.errors import StoreBusyError, StoreUnavailableError

Stamp = tuple[int, int, int, int]


class ChangedMeanwhileError(StoreBusyError):
    """The file was written to while it was being read as one that nobody writes to."""


class IndexMissingError(StoreUnavailableError):
    """The WAL has no index. It is so for a moment when somebody closes the ledger elsewhere."""


@contextmanager
def reading(
    path: str, connect: Callable[[str], sqlite3.Connection]
) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, beside the file neither, for one read."""
    before = _state(path)
    wal, index = before[1], before[2]
    if wal is not None and index is not None:
        # Somebody has the ledger open, or was killed: SQLite reads the WAL, and copes with
        # an index that it may not change.
        with closing(connect("mode=ro")) as db:
            yield db
        return
    if wal is not None and _size(wal) > 0:
        raise IndexMissingError(
            f"{path} can only be read here, and not without writing: the last commits are in "
            f"{path}-wal, and the index {path}-shm is missing. Copy {path} and {path}-wal to "
            "where you can write, and open the copy."
        )
    # No WAL: everything is in the file itself.
    try:
        with closing(connect("mode=ro&immutable=1")) as db:
            yield db
    except sqlite3.DatabaseError:
        _check_same(path, before)
        raise
    _check_same(path, before)


def _state(path: str) -> tuple[Stamp | None, Stamp | None, Stamp | None]:
    """The file, its WAL and its index; the index changes with every reader, so only if it is."""
    index = _stamp(f"{path}-shm")
    return _stamp(path), _stamp(f"{path}-wal"), index and (0, 0, 0, 0)


def _check_same(path: str, before: tuple[Stamp | None, Stamp | None, Stamp | None]) -> None:
    if _state(path) != before:
        raise ChangedMeanwhileError(
            f"{path} was written to while it was being read from where it is read-only. Try again."
        )


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _size(stamp: Stamp) -> int:
    return stamp[1]
