"""SQLite and processes that fork: what a child must not do with its parent's connections.

SQLite keeps a table of the files that this process has locked. A forked child has a copy of that
table and none of the locks: if a connection was open at the fork, another one to the same file
would take for granted in the child what is the parent's, and both would lose what they wrote.
So a child that finds such a file refuses to open it, and closes no connection of its parent's.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from weakref import ref

from turnledger.ledger.errors import StoreUnavailableError

# By id. No weak set: what it does when one is collected is a place where Ctrl-C gets lost.
_LIVE: dict[int, ref[OwnConnection]] = {}
# In a child: kept for ever, because what is collected is closed.
_THE_PARENTS: list[OwnConnection] = []
_SHARED: set[tuple[int, int]] = set()


class OwnConnection(sqlite3.Connection):
    """A connection that knows whose it is, and of what file."""

    def __init__(self, path: str, database: str, **settings: Any) -> None:
        self.file = _number(path)
        self.process = os.getpid()
        # Before it is open, so that nothing open is ever missing here.
        _LIVE[id(self)] = ref(self)
        super().__init__(database, **settings)

    def close(self) -> None:
        if self.process == os.getpid():
            super().close()
            _LIVE.pop(id(self), None)


def check_not_shared(path: str) -> None:
    """Refuse a file with which SQLite was at work in the parent when this process was forked."""
    if _SHARED and _number(path) in _SHARED:
        raise StoreUnavailableError(
            f"{path} was in use in the process that forked this one, in the very moment of the "
            "fork, and SQLite can't open it here any more. Nothing was written. Fork while no "
            "other thread uses the ledger, or start the process anew (multiprocessing's spawn)."
        )


def _number(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _after_fork() -> None:
    for reference in list(_LIVE.values()):
        connection = reference()
        if connection is not None:
            _THE_PARENTS.append(connection)
            _SHARED.add(connection.file)


os.register_at_fork(after_in_child=_after_fork)
