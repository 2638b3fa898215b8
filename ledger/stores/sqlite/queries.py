"""Reads of a ledger's SQLite file, done again where a failure is likely to pass."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, TypeVar

from turnledger.ledger.errors import IntegrityFailureError, StoreUnavailableError
from turnledger.ledger.stores.sqlite.connection import (
    RETRY_SECONDS,
    ChangedMeanwhileError,
    ConnectionPool,
    IndexMissingError,
)
from turnledger.ledger.stores.sqlite.errors import code_of, is_damage, unavailable

T = TypeVar("T")
# How often a read is tried again: of a file that is written to meanwhile, or damaged.
READ_ATTEMPTS = 30
# What SQLite says of files that come and go beside one that can only be read here.
_NOT_YET_THERE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def _decoded_if_possible(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


class Queries:
    """Queries on the connections of a pool; `check_open` raises once the ledger is closed."""

    def __init__(self, pool: ConnectionPool, check_open: Callable[[], None]) -> None:
        self._pool = pool
        self._check_open = check_open

    def all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""
        return self.ask(lambda db: db.execute(statement, values).fetchall())

    def all_lenient(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query; text that can't be decoded is given as bytes.

        So one damaged row does not hide the others of its page: its reader finds a value
        of the wrong type.
        """
        try:
            return self.all(statement, values)
        except IntegrityFailureError:
            with self.undecoded() as db:
                db.text_factory = _decoded_if_possible
                return db.execute(statement, values).fetchall()

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer of a function that reads on one connection."""
        for _ in range(READ_ATTEMPTS):
            try:
                with self._reader() as db:
                    return question(db)
            except StoreUnavailableError as error:
                if not self._may_pass(error):
                    raise
            time.sleep(RETRY_SECONDS)
        with self._reader() as db:
            return question(db)

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._check_open()
        try:
            if self._pool.read_only:
                with self._pool.read_only_connection() as db:
                    yield db
                return
            with self._pool.reader() as db:
                yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if "decode" in str(error):
                raise IntegrityFailureError(
                    f"{self._pool.path} holds damaged text: {error}"
                ) from error
            raise unavailable(error, "reading") from error

    def _may_pass(self, error: StoreUnavailableError) -> bool:
        """Whether the failure is likely over in a moment."""
        if isinstance(error, ChangedMeanwhileError | IndexMissingError):
            return True
        # A failing disk may have taken pages back, and the writer that met that is about to
        # invalidate the WAL's index. And files beside one that can only be read here come and go
        # when other processes open and close it.
        return is_damage(error) or (self._pool.read_only and code_of(error) in _NOT_YET_THERE)

    @contextmanager
    def undecoded(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own that gives text as bytes, so that damage can be looked at."""
        self._check_open()
        try:
            with self._own_connection() as db:
                db.text_factory = bytes
                yield db
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise unavailable(error, "verifying") from error

    def _own_connection(self) -> AbstractContextManager[sqlite3.Connection]:
        if self._pool.read_only:
            return self._pool.read_only_connection()
        return closing(self._pool.connect())
