"""Damage to one place of one table of a ledger, behind its back, drawn from a seed.

Rows are deleted, changed in a column, swapped in a column or copied; on SQLite a byte of the file
is changed too, where only one table is different after it. Events and index that are changed to
fit each other are not made here, nor leases: that is forgery, which is a matter of the seal.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg

from turnledger.ledger.events.types import EVENT_TYPES

TABLES = ("events", "runs", "run_tags", "blobs")
# How often each is chosen.
WEIGHTS = (5, 4, 1, 1)
KEYS = {
    "events": ("position",),
    "runs": ("run_id",),
    "run_tags": ("key", "value", "run_id"),
    "blobs": ("name",),
}
# What other values of a column look like that its readers tell apart.
KNOWN = {
    "tag": (*EVENT_TYPES, "no.such_tag"),
    "status": ("running", "waiting", "completed", "failed", "parked", "abandoned", "odd"),
    "kind": ("run", "fork", "continuation", "odd"),
}
NUMBERS = (0, 1, 2, 3, 5, 8, 21, -1, 2**31, 2**53, 10**18)
TRIES = 200
Row = dict[str, Any]


class Damage(NamedTuple):
    """What was done: the rows as they were and as they are, or None if that is not known."""

    what: str
    table: str
    removed: Sequence[Row] | None
    added: Sequence[Row] = ()


class Unfit(Exception):  # noqa: N818
    """The database can't hold it, or it changes nothing or more than one table."""


class Vandal(ABC):
    """Reads and replaces rows of a ledger's tables, past its triggers."""

    @abstractmethod
    def rows(self, table: str) -> list[Row]: ...

    @abstractmethod
    def replace(self, table: str, removed: Sequence[Row], added: Sequence[Row]) -> None:
        """Delete rows and insert others in one transaction; Unfit if that is refused."""

    def harm(self, dice: Random) -> Damage:
        """Do some damage; it is drawn again until the database takes it."""
        for _ in range(TRIES):
            try:
                return self._harm(dice)
            except Unfit:
                continue
        raise AssertionError("found nothing to damage")

    def _harm(self, dice: Random) -> Damage:
        (table,) = dice.choices(TABLES, WEIGHTS)
        rows = self.rows(table)
        if not rows:
            raise Unfit
        do = dice.choice((_delete, _delete, _change, _change, _change, _change, _swap, _copy))
        what, removed, added = do(dice, table, rows)
        if list(removed) == list(added):
            raise Unfit
        self.replace(table, removed, added)
        return Damage(f"{table}: {what}", table, removed, added)


# --- what is done to rows -----------------------------------------------------------------

Done = tuple[str, Sequence[Row], Sequence[Row]]


def _chosen(dice: Random, table: str, rows: list[Row]) -> Row:
    """A row; of a run's events the last and the first more often than the others."""
    row = dice.choice(rows)
    if table != "events":
        return row
    of_run = sorted((r for r in rows if r["run_id"] == row["run_id"]), key=lambda r: r["version"])
    return dice.choice((of_run[-1], of_run[-1], dice.choice(of_run[-4:]), of_run[0], row))


def _named(table: str, row: Row) -> str:
    names = ("run_id", "version", "tag") if table == "events" else KEYS[table]
    return " ".join(f"{row[name]!s:.36}" for name in names)


def _delete(dice: Random, table: str, rows: list[Row]) -> Done:
    row = _chosen(dice, table, rows)
    if dice.random() < 0.15:
        owner = "name" if table == "blobs" else "run_id"
        gone = [one for one in rows if one[owner] == row[owner]]
        return f"delete all of {row[owner]}", gone, ()
    return f"delete {_named(table, row)}", [row], ()


def _change(dice: Random, table: str, rows: list[Row]) -> Done:
    row = _chosen(dice, table, rows)
    column = dice.choice(list(row))
    value, how = _other_value(dice, table, rows, row, column)
    what = f"{column} of {_named(table, row)}, {how}: {row[column]!r:.200} -> {value!r:.200}"
    return what, [row], [row | {column: value}]


def _swap(dice: Random, table: str, rows: list[Row]) -> Done:
    one, other = _chosen(dice, table, rows), _chosen(dice, table, rows)
    columns = list(one)
    if one == other:
        raise Unfit
    chosen = dice.sample(columns, dice.choice((1, 1, 1, 2, len(columns) - 1)))
    # In no other order than the table's, or two runs of a seed could differ.
    changed = [one | {c: other[c] for c in chosen}, other | {c: one[c] for c in chosen}]
    what = f"swap {', '.join(chosen)} of {_named(table, one)} and {_named(table, other)}"
    return what, [one, other], changed


def _copy(dice: Random, table: str, rows: list[Row]) -> Done:
    """A row more: with a key of its own, and in its run, after its end or in another one."""
    row = dict(_chosen(dice, table, rows))
    new_id = str(UUID(int=dice.getrandbits(128), version=4))
    what = f"copy {_named(table, row)}"
    if table == "events":
        row["position"] = max(one["position"] for one in rows) + dice.randint(1, 3)
        row["event_id"] = new_id
        row["run_id"] = dice.choice((row["run_id"], row["run_id"], dice.choice(rows)["run_id"]))
        ends = [one["version"] for one in rows if one["run_id"] == row["run_id"]]
        row["version"] = dice.choice((max(ends) + 1, max(ends) + 1, max(ends) + 2, min(ends) - 1))
        what += f" as {row['run_id']} {row['version']}"
    elif table == "runs":
        row["run_id"] = new_id
    elif table == "run_tags":
        name = dice.choice(("key", "value", "run_id"))
        row[name] = dice.choice((new_id, dice.choice(rows)[name], "turnledger.live"))
    else:
        row["name"] = "sha256:" + dice.randbytes(32).hex()
    return what, (), [row]


def _other_value(
    dice: Random, table: str, rows: list[Row], row: Row, column: str
) -> tuple[Any, str]:
    value = row[column]
    match dice.randrange(8):
        case 0:
            return dice.choice(rows)[column], "of another row"
        case 1:
            return None, "null"
        case 2 if column in KNOWN:
            return dice.choice(KNOWN[column]), "another known value"
        case 2 | 3:
            return _random_value(dice, value), "random"
        case 4:
            return _of_other_type(dice, value), "another type"
        case 5 | 6 if column in ("data", "tags"):
            return _other_json(dice, value), "another JSON value"
        case _:
            return _off_by_one(dice, value), "off by one"


def _random_value(dice: Random, value: Any) -> Any:
    if isinstance(value, int):
        return dice.choice((*NUMBERS, dice.getrandbits(62)))
    if isinstance(value, bytes):
        return dice.randbytes(len(value) or 1)
    words = ("", "{}", "[]", "null", "x", str(UUID(int=dice.getrandbits(128), version=4)))
    return dice.choice(words)


def _of_other_type(dice: Random, value: Any) -> Any:
    if isinstance(value, int):
        return dice.choice((str(value), str(value).encode(), value + 0.5, "x"))
    if isinstance(value, bytes):
        return dice.choice((value.hex(), 7, ""))
    return dice.choice((str(value).encode(), 7, 1.5, b"\xff\xfe"))


def _off_by_one(dice: Random, value: Any) -> Any:
    if isinstance(value, int):
        return value + dice.choice((-1, 1))
    if isinstance(value, bytes):
        return bytes(_bent(dice, bytearray(value)))
    return _bent(dice, bytearray(str(value).encode())).decode("ascii", "replace")


def _bent(dice: Random, raw: bytearray) -> bytearray:
    """One byte more, one less, or one that is different."""
    at = dice.randrange(len(raw) or 1)
    match dice.randrange(4):
        case 0:
            raw.insert(at, dice.choice(b' 0a"'))
        case 1:
            del raw[at : at + 1]
        case _ if raw:
            raw[at] ^= 1 << dice.randrange(7)
    return raw


def _other_json(dice: Random, text: Any) -> Any:
    """The same JSON with one value that is different, or one key less."""
    content = msgspec.json.decode(text)
    holder, inner = content, content
    while isinstance(inner, dict | list) and inner:
        holder = inner
        places = list(inner) if isinstance(inner, dict) else range(len(inner))
        place = dice.choice(list(places))
        inner = inner[place]
    if holder is inner:
        raise Unfit
    if dice.random() < 0.2:
        del holder[place]
    elif isinstance(inner, bool):
        holder[place] = not inner
    elif isinstance(inner, str):
        words = ("retry", "fail", "ask", "completed", "failed", "", inner + "x", inner[:-1])
        holder[place] = dice.choice(words)
    else:
        holder[place] = dice.choice((0, 1, 2, 3, "x", None))
    return msgspec.json.encode(content).decode()


# --- where it is done ---------------------------------------------------------------------


class SqliteVandal(Vandal):
    """A ledger's file, by SQL and by its bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous=OFF")
        return db

    def _harm(self, dice: Random) -> Damage:
        return self._bend(dice) if dice.random() < 0.15 else super()._harm(dice)

    def rows(self, table: str) -> list[Row]:
        with closing(self._connect()) as db:
            return _rows(db, table)

    def replace(self, table: str, removed: Sequence[Row], added: Sequence[Row]) -> None:
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            found = "SELECT name, sql FROM sqlite_master WHERE type='trigger'"
            triggers = db.execute(found).fetchall()
            for name, _ in triggers:
                db.execute(f"DROP TRIGGER {name}")
            try:
                for row in removed:
                    where = " AND ".join(f"{key} IS ?" for key in KEYS[table])
                    keys = [row[key] for key in KEYS[table]]
                    db.execute(f"DELETE FROM {table} WHERE {where}", keys)
                for row in added:
                    slots = ", ".join("?" * len(row))
                    db.execute(f"INSERT INTO {table} VALUES ({slots})", list(row.values()))
            except (sqlite3.Error, OverflowError) as error:
                db.execute("ROLLBACK")
                raise Unfit from error
            # As they were, or they are all that a check needs to find.
            for _, definition in triggers:
                db.execute(definition)
            db.execute("COMMIT")

    def _bend(self, dice: Random) -> Damage:
        """Change a byte of a page of a table or of its indexes."""
        before = self._seen()
        (table,) = dice.choices(TABLES, WEIGHTS)
        with closing(self._connect()) as db:
            (size,) = db.execute("PRAGMA page_size").fetchone()
            pages = db.execute(
                "SELECT pageno FROM dbstat JOIN sqlite_master USING (name) WHERE tbl_name=?",
                (table,),
            ).fetchall()
        content = self._path.read_bytes()
        start = (dice.choice(pages)[0] - 1) * size
        used = [at for at in range(start, start + size) if content[at]]
        if not used:
            raise Unfit
        at = dice.choice(used)
        changed = bytearray(content)
        changed[at] ^= 1 << dice.randrange(8)
        self._path.write_bytes(changed)
        after = self._seen()
        others = {name for name in before if name != table and before[name] != after.get(name)}
        if others:
            self._path.write_bytes(content)
            raise Unfit
        what = f"{table}: bit of byte {at - start} of page {start // size + 1}"
        # Rows may be as before, and an index not: then anything may be.
        return Damage(what, table, None)

    def _seen(self) -> dict[str, Any]:
        """The content of every table; an error's text for those that can't be read."""
        seen: dict[str, Any] = {}
        with closing(self._connect()) as db:
            others = ("meta", "leases", "shelves", "shelf_rows", "access_tokens", "sqlite_master")
            for table in (*TABLES, *others):
                try:
                    seen[table] = [list(row.values()) for row in _rows(db, table)]
                except sqlite3.Error as error:
                    seen[table] = str(error)
        return seen


def _rows(db: sqlite3.Connection, table: str) -> list[Row]:
    return [dict(row) for row in db.execute(f"SELECT * FROM {table} NOT INDEXED")]


class PostgresVandal(Vandal):
    """A superuser's connections, in which no trigger fires."""

    def __init__(self, url: str) -> None:
        self._url = url

    def rows(self, table: str) -> list[Row]:
        with psycopg.connect(self._url) as db:
            order = ", ".join(KEYS[table])
            cursor = db.execute(f"SELECT * FROM {table} ORDER BY {order}")
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def replace(self, table: str, removed: Sequence[Row], added: Sequence[Row]) -> None:
        try:
            with psycopg.connect(self._url) as db:
                db.execute("SET session_replication_role = replica")
                for row in removed:
                    where = " AND ".join(f"{key} = %s" for key in KEYS[table])
                    keys = [row[key] for key in KEYS[table]]
                    db.execute(f"DELETE FROM {table} WHERE {where}", keys)
                for row in added:
                    slots = ", ".join(["%s"] * len(row))
                    db.execute(f"INSERT INTO {table} VALUES ({slots})", list(row.values()))
        except (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError) as error:
            raise Unfit from error
