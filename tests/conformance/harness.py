"""The stores under test: handles on one ledger, and the means to damage it unseen.

`STORES` is the one list of stores. What a test needs to know of a store is here and
nowhere else, so a new store is one line and can't opt out of a test.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.postgres import drop_database, new_database
from turnledger.ledger import Ledger, Row
from turnledger.ledger.runs.record import RawRow

COLUMNS = ("position", "run_id", "version", "tag", "event_id", "recorded_at", "digest", "data")
TEXT = frozenset({"run_id", "tag", "event_id", "data"})
NUMBERS = frozenset({"position", "version", "recorded_at"})
RUN_COLUMNS = (
    "run_id",
    "version",
    "digest",
    "recorded_at",
    "epoch",
    "status",
    "started_at",
    "prompt",
    "kind",
    "parent",
    "parent_version",
    "tags",
)
RUN_TEXT = frozenset({"run_id", "status", "prompt", "kind", "parent", "tags"})


class Vandal(ABC):
    """Changes what a store holds, behind the ledger's back. Text is given as bytes."""

    @abstractmethod
    def rows(self) -> list[RawRow]:
        """Every event as stored, by position."""

    @abstractmethod
    def change(self, position: int, column: str, value: Any) -> bool:
        """Overwrite one column of one event; False if the database can't hold the value."""

    @abstractmethod
    def delete(self, position: int) -> None: ...

    @abstractmethod
    def insert(self, row: RawRow) -> None: ...

    @abstractmethod
    def run_row(self, run_id: object) -> dict[str, Any]:
        """A run's row in the index, as stored."""

    @abstractmethod
    def change_run(self, run_id: object, column: str, value: Any) -> bool: ...

    @abstractmethod
    def delete_run(self, run_id: object) -> None: ...

    @abstractmethod
    def change_blob(self, name: str, content: bytes | str) -> None: ...

    @abstractmethod
    def delete_blob(self, name: str) -> None: ...

    @abstractmethod
    def empty_derived_data(self) -> None:
        """Delete all watermarks and rows of derived data."""

    @abstractmethod
    def honest_attempts(self) -> Sequence[Callable[[], object]]:
        """Ways to change an event or a blob without first taking the store's guard away."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what this vandal holds."""

    def at(self, run_id: object, version: int) -> RawRow:
        """The stored row of one record."""
        wanted = (str(run_id).encode(), version)
        return next(row for row in self.rows() if (row.run_id, row.version) == wanted)

    def replace(self, row: RawRow) -> None:
        """Put a row back as it was."""
        self.delete(row.position)
        self.insert(row)


class SqlVandal(Vandal):
    """What the SQL stores have in common."""

    mark: ClassVar[str]

    @abstractmethod
    def _do(self, statement: str, values: Sequence[Any] = ()) -> list[Any]: ...

    @abstractmethod
    def _try(self, statement: str, values: Sequence[Any]) -> bool: ...

    @abstractmethod
    def _slot(self, column: str, texts: frozenset[str]) -> str:
        """The placeholder for a column's value."""

    def _value(self, column: str, value: Any, texts: frozenset[str]) -> Any:
        return value

    def _raw(self, value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    def rows(self) -> list[RawRow]:
        found = self._do(f"SELECT {', '.join(COLUMNS)} FROM events ORDER BY position")
        return [RawRow(*map(self._raw, row)) for row in found]

    def change(self, position: int, column: str, value: Any) -> bool:
        return self._try(
            f"UPDATE events SET {column}={self._slot(column, TEXT)} WHERE position={self.mark}",
            (self._value(column, value, TEXT), position),
        )

    def delete(self, position: int) -> None:
        self._do(f"DELETE FROM events WHERE position={self.mark}", (position,))

    def insert(self, row: RawRow) -> None:
        slots = ", ".join(self._slot(column, TEXT) for column in COLUMNS)
        values = [
            self._value(column, value, TEXT) for column, value in zip(COLUMNS, row, strict=True)
        ]
        self._do(f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({slots})", values)

    def run_row(self, run_id: object) -> dict[str, Any]:
        (row,) = self._do(
            f"SELECT {', '.join(RUN_COLUMNS)} FROM runs WHERE run_id={self.mark}", (str(run_id),)
        )
        return dict(zip(RUN_COLUMNS, map(self._raw, row), strict=True))

    def change_run(self, run_id: object, column: str, value: Any) -> bool:
        return self._try(
            f"UPDATE runs SET {column}={self._slot(column, RUN_TEXT)} WHERE run_id={self.mark}",
            (self._value(column, value, RUN_TEXT), str(run_id)),
        )

    def delete_run(self, run_id: object) -> None:
        self._do(f"DELETE FROM runs WHERE run_id={self.mark}", (str(run_id),))

    def change_blob(self, name: str, content: bytes | str) -> None:
        self._do(f"UPDATE blobs SET content={self.mark} WHERE name={self.mark}", (content, name))

    def delete_blob(self, name: str) -> None:
        self._do(f"DELETE FROM blobs WHERE name={self.mark}", (name,))

    def empty_derived_data(self) -> None:
        self._do("DELETE FROM shelves")
        self._do("DELETE FROM shelf_rows")


class SQLiteVandal(SqlVandal):
    """`sqlite3` on the same file, the triggers dropped for the moment of a change."""

    mark = "?"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.text_factory = bytes
        self._db.execute("PRAGMA synchronous=OFF")

    def _do(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        if statement.startswith("SELECT"):
            return self._db.execute(statement, values).fetchall()
        with self.unguarded() as db:
            return db.execute(statement, values).fetchall()

    @contextmanager
    def unguarded(self) -> Iterator[sqlite3.Connection]:
        """A transaction in which no trigger refuses anything; verify would miss them after it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            found = "SELECT name, sql FROM sqlite_master WHERE type='trigger'"
            triggers = self._db.execute(found).fetchall()
            for name, _ in triggers:
                self._db.execute(f"DROP TRIGGER {name.decode()}")
            yield self._db
            for _, definition in triggers:
                self._db.execute(definition.decode())
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _try(self, statement: str, values: Sequence[Any]) -> bool:
        try:
            self._do(statement, values)
        except sqlite3.IntegrityError:
            return False
        return True

    def _slot(self, column: str, texts: frozenset[str]) -> str:
        return "CAST(? AS TEXT)" if column in texts else "?"

    def honest_attempts(self) -> Sequence[Callable[[], object]]:
        statements = (
            "UPDATE events SET data='{}'",
            "UPDATE OR REPLACE events SET version=version",
            "DELETE FROM events",
            "DELETE FROM events WHERE version=1",
            "UPDATE blobs SET content=x'00'",
            "DELETE FROM blobs",
        )
        return [lambda statement=statement: self._db.execute(statement) for statement in statements]

    def close(self) -> None:
        self._db.close()


class PostgresVandal(SqlVandal):
    """A superuser's connection, the triggers disabled for its session."""

    mark = "%s"

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)

    def _do(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        self._db.execute("SET session_replication_role = replica")
        cursor = self._db.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

    def _try(self, statement: str, values: Sequence[Any]) -> bool:
        try:
            self._do(statement, values)
        except (psycopg.IntegrityError, psycopg.DataError):
            return False
        return True

    def _slot(self, column: str, texts: frozenset[str]) -> str:
        return "convert_from(%s, 'UTF8')" if column in texts else "%s"

    def honest_attempts(self) -> Sequence[Callable[[], object]]:
        statements = (
            "UPDATE events SET data='{}'",
            "DELETE FROM events",
            "DELETE FROM events WHERE version=1",
            "TRUNCATE events",
            "UPDATE blobs SET content='x'",
            "DELETE FROM blobs",
            "TRUNCATE blobs",
        )

        def attempt(statement: str) -> None:
            self._db.execute("SET session_replication_role = origin")
            self._db.execute(statement)

        return [lambda statement=statement: attempt(statement) for statement in statements]

    def close(self) -> None:
        self._db.close()


class MemoryVandal(Vandal):
    """Reaches into the tables of the process."""

    def __init__(self, anchor: Ledger) -> None:
        self._anchor = anchor
        self._tables: Any = anchor.store.tables  # type: ignore[attr-defined]

    def rows(self) -> list[RawRow]:
        ordered = sorted(self._tables.rows, key=lambda row: row.position)
        return [RawRow(*map(_to_raw, row)) for row in ordered]

    def _place(self, position: int) -> int:
        return next(i for i, row in enumerate(self._tables.rows) if row.position == position)

    def change(self, position: int, column: str, value: Any) -> bool:
        place = self._place(position)
        stored = _to_stored(value) if column in TEXT else value
        self._tables.rows[place] = self._tables.rows[place]._replace(**{column: stored})
        self._find_again()
        return True

    def delete(self, position: int) -> None:
        del self._tables.rows[self._place(position)]
        self._find_again()

    def _find_again(self) -> None:
        """Where rows are found by run and id follows the rows, as an index of a database does."""
        tables = self._tables
        tables.by_run.clear()
        for place, row in enumerate(tables.rows):
            tables.by_run.setdefault(row.run_id, []).append(place)
        for places in tables.by_run.values():
            places.sort(key=lambda place: _in_order(tables.rows[place].version))
        tables.by_id.clear()
        tables.by_id.update((row.event_id, place) for place, row in enumerate(tables.rows))

    def insert(self, row: RawRow) -> None:
        stored = (
            _to_stored(value) if column in TEXT else value
            for column, value in zip(COLUMNS, row, strict=True)
        )
        self._tables.rows.append(Row(*stored))
        self._tables.rows.sort(key=lambda row: row.position)
        self._find_again()

    def run_row(self, run_id: object) -> dict[str, Any]:
        row = self._tables.runs[str(run_id)]
        return {column: _to_raw(getattr(row, column)) for column in RUN_COLUMNS}

    def change_run(self, run_id: object, column: str, value: Any) -> bool:
        row = self._tables.runs.pop(str(run_id))
        new = _to_stored(value) if column in RUN_TEXT and value is not None else value
        row = msgspec.structs.replace(row, **{column: new})
        self._tables.runs[row.run_id] = row
        return True

    def delete_run(self, run_id: object) -> None:
        del self._tables.runs[str(run_id)]

    def change_blob(self, name: str, content: bytes | str) -> None:
        self._tables.blobs[name] = content

    def delete_blob(self, name: str) -> None:
        del self._tables.blobs[name]

    def empty_derived_data(self) -> None:
        self._tables.watermarks.clear()
        self._tables.derived.clear()

    def close(self) -> None:
        pass

    def honest_attempts(self) -> Sequence[Callable[[], object]]:
        """What a program can do with the objects that the ledger hands out."""
        record = next(self._anchor.tail())
        return (
            lambda: record.row.__setitem__(7, "{}"),  # type: ignore[attr-defined]
            lambda: record.row.__delitem__(7),  # type: ignore[attr-defined]
            lambda: setattr(record, "data", "{}"),
            lambda: setattr(record.event, "kind", "other.kind"),
        )


def _in_order(version: Any) -> tuple[bool, Any]:
    return (not isinstance(version, int), version)


def _to_raw(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _to_stored(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


class StoreUnderTest(ABC):
    """One ledger in one store; `open` gives as many handles on it as a test wants."""

    reaches_processes: ClassVar[bool] = True
    url: str

    def __init__(self) -> None:
        self._handles: list[Ledger] = []

    def open(self, **options: Any) -> Ledger:
        """A new handle, closed with the store."""
        ledger = Ledger.open(self.url, **options)
        self._handles.append(ledger)
        return ledger

    def a_handle(self) -> Ledger:
        """A handle that is open already, or a new one."""
        return next((one for one in self._handles if not one.is_closed), None) or self.open()

    @cached_property
    def vandal(self) -> Vandal:
        self.open()  # so that there is something to damage
        return self._vandal()

    @abstractmethod
    def _vandal(self) -> Vandal: ...

    def close(self) -> None:
        if "vandal" in self.__dict__:
            self.vandal.close()
        for ledger in self._handles:
            ledger.close()


class MemoryStore(StoreUnderTest):
    reaches_processes = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.url = f"memory://{uuid4()}"
        self._anchor = self.open()  # the ledger is gone with its last handle

    def _vandal(self) -> Vandal:
        return MemoryVandal(self._anchor)


class SQLiteStore(StoreUnderTest):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / f"{uuid4()}.db"
        self.url = f"sqlite:///{self.path}"

    def _vandal(self) -> Vandal:
        return SQLiteVandal(self.path)


class PostgresStore(StoreUnderTest):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.url = new_database(like=_empty_ledger())

    def _vandal(self) -> Vandal:
        return PostgresVandal(self.url)

    def close(self) -> None:
        super().close()
        drop_database(self.url)


@cache
def _empty_ledger() -> str:
    """The name of a database with an empty ledger, which this process has made to copy it.

    A copy takes half as long as to make the tables, and hundreds of tests want one.
    """
    url = new_database()
    Ledger.open(url).close()
    return str(conninfo_to_dict(url)["dbname"])


STORES: dict[str, type[StoreUnderTest]] = {
    "memory": MemoryStore,
    "sqlite": SQLiteStore,
    "postgres": PostgresStore,
}


@contextmanager
def store_under_test(name: str, folder: Path) -> Iterator[StoreUnderTest]:
    store = STORES[name](folder)  # type: ignore[call-arg]
    try:
        yield store
    finally:
        store.close()
