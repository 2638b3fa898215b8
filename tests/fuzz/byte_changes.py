"""A ledger's file with something changed behind its back, and what a reader sees of that.

A change is known by its round and number, and drawn from these alone. Bytes of the file itself,
whole pages and ranges, and any column of any row by somebody who has SQLite. What is not looked
at: positions, as long as they grow within a run (an import gives others), the WAL (it has
checksums, and cutting it is cutting the tail, which the seal finds), and what can be thrown away
and made again (shelves, leases).
"""

from __future__ import annotations

import io
import random
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import UUID

from tests.fuzz.material import CountingClock, populate
from tests.fuzz.targets import Target, promise
from turnledger.ledger import Ledger, Record, Row, TurnledgerError, export_runs

PAGE = 4096
TABLES = ("events", "runs", "run_tags", "blobs", "meta")
# In memory, where there is such a place: nothing here is about disks.
FAST = Path("/dev/shm")


class Change(NamedTuple):
    """What is done to the file: its bytes as they are then."""

    what: str
    content: bytes
    # Whether it is read even if verify found it: then reading has typed errors only, too.
    is_read: bool


class ByteChanges(Target):
    """Every change that a reader could see is found by `verify_all`."""

    name = "byte-changes"
    inputs = 2_000
    few = 300
    goal = 0  # it has a search of its own

    @contextmanager
    def prepared(self) -> Iterator[None]:
        where = FAST if FAST.is_dir() else None
        with TemporaryDirectory(prefix="changes-", dir=where) as folder:
            self._path = Path(folder) / "runs.db"
            with Ledger.open(self._path, clock=CountingClock()) as ledger:
                populate(ledger)
                self._seen = seen_in(ledger)
                promise(ledger.verify_all().ok, "the ledger is not sound to begin with")
            self._content = self._path.read_bytes()
            self._used = [at for at, byte in enumerate(self._content) if byte]
            yield

    def draw(self, dice: random.Random) -> Change:
        kind = dice.choice((self._bytes, self._bytes, self._pages, self._by_sql, self._by_sql))
        what, content = kind(dice)
        return Change(what, content, dice.random() < 0.1)

    def check(self, given: Change) -> bool:
        """Whether it was found. Otherwise a reader must see the ledger as it was."""
        self._put(given.content)
        found = self._found()
        if found and not given.is_read:
            return True
        seen = self._read()
        promise(found or seen == self._seen, f"{given.what}: a reader sees it, verify does not")
        return found

    def shown(self, given: Change) -> str:
        pieces = [
            f"{at}: {given.content[at : at + 64].hex()}"
            for at in range(0, max(len(given.content), len(self._content)), 64)
            if given.content[at : at + 64] != self._content[at : at + 64]
        ]
        if len(pieces) > 40:
            return f"{given.what}: {b64encode(given.content).decode()}"
        return f"{given.what}, bytes from {'; '.join(pieces)}"

    def _put(self, content: bytes) -> None:
        for end in ("-wal", "-shm", "-journal"):
            self._path.with_name(f"{self._path.name}{end}").unlink(missing_ok=True)
        self._path.write_bytes(content)

    def _found(self) -> bool:
        try:
            with Ledger.open(self._path, create=False, wait=5.0) as ledger:
                return not ledger.verify_all().ok
        except TurnledgerError:
            return True

    def _read(self) -> Any:
        try:
            with Ledger.open(self._path, create=False, wait=5.0) as ledger:
                return seen_in(ledger)
        except TurnledgerError as error:
            return error

    # --- bytes ---

    def _bytes(self, dice: random.Random) -> tuple[str, bytes]:
        content = bytearray(self._content)
        count = dice.choice((1, 1, 1, 1, 2, 8))
        for _ in range(count):
            at = dice.choice(self._used) if dice.random() < 0.9 else dice.randrange(len(content))
            if dice.random() < 0.05:
                at = dice.randrange(100)
            if dice.random() < 0.5:
                content[at] ^= 1 << dice.randrange(8)
            else:
                content[at] = dice.randrange(256)
        return f"{count} bytes", bytes(content)

    def _pages(self, dice: random.Random) -> tuple[str, bytes]:
        """Ranges and pages: zeroed, repeated elsewhere, swapped, cut off."""
        content = bytearray(self._content)
        whole = dice.random() < 0.5
        size = PAGE if whole else dice.choice((2, 4, 8, 36, 100, 500))
        step = PAGE if whole else 1
        one = dice.randrange(0, len(content) - size + 1, step)
        other = dice.randrange(0, len(content) - size + 1, step)
        if not whole:
            one, other = min(dice.choice(self._used), len(content) - size), other
        match dice.randrange(5):
            case 0:
                content[one : one + size] = bytes(size)
                return f"{size} bytes zeroed at {one}", bytes(content)
            case 1:
                content[other : other + size] = content[one : one + size]
                return f"{size} bytes of {one} at {other} too", bytes(content)
            case 2 if abs(one - other) >= size:
                first, second = content[one : one + size], content[other : other + size]
                content[one : one + size], content[other : other + size] = second, first
                return f"{size} bytes swapped, {one} and {other}", bytes(content)
            case 3 if dice.random() < 0.3:
                return f"cut off at {one}", bytes(content[:one])
            case _:
                content[one : one + size] = dice.randbytes(size)
                return f"{size} bytes at random at {one}", bytes(content)

    # --- by SQL ---

    def _by_sql(self, dice: random.Random) -> tuple[str, bytes]:
        self._put(self._content)
        path = self._path.with_name("vandal.db")
        path.write_bytes(self._content)
        done: list[str] = []
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.text_factory = bytes
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("PRAGMA synchronous=OFF")
            found = "SELECT name, sql FROM sqlite_master WHERE type='trigger'"
            triggers = db.execute(found).fetchall()
            for name, _ in triggers:
                db.execute(f"DROP TRIGGER {name.decode()}")
            for _ in range(dice.choice((1, 1, 1, 2))):
                with suppress(sqlite3.IntegrityError):
                    done.append(_vandalism(dice, db))
            for _, definition in triggers:  # or they are all that verify needs to find
                db.execute(definition.decode())
        return "; ".join(done) or "nothing", path.read_bytes()


def _vandalism(dice: random.Random, db: sqlite3.Connection) -> str:
    table = dice.choice((*TABLES, "events", "runs", "run_tags"))
    rows = db.execute(f"SELECT * FROM {table}").fetchall()
    if not rows:
        return f"nothing: {table} is empty by now"
    names = [row[1].decode() for row in db.execute(f"PRAGMA table_info({table})")]
    keys = [row[1].decode() for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
    row = dice.choice(rows)
    where = " AND ".join(f"{key}={_spelt(row[names.index(key)])}" for key in keys)
    place = dice.randrange(len(names))
    match dice.randrange(10):
        case 8 | 9 if table == "events":
            statement = _one_more(dice, db, row)
        case 0:
            statement = f"DELETE FROM {table} WHERE {where}"
        case 1:
            values = [_spelt(value) for value in row]
            values[place] = _spelt(_changed(dice, row[place]))
            verb = dice.choice(("INSERT", "REPLACE"))
            statement = f"{verb} INTO {table} VALUES ({', '.join(values)})"
        case 2:
            other = dice.choice(rows)
            value = _spelt(other[place])
            statement = f"UPDATE OR REPLACE {table} SET {names[place]}={value} WHERE {where}"
        case 3:
            kind = dice.choice(("BLOB", "TEXT", "INTEGER", "REAL", "NUMERIC"))
            column = names[place]
            statement = f"UPDATE {table} SET {column}=CAST({column} AS {kind}) WHERE {where}"
        case _:
            value = _spelt(_changed(dice, row[place]))
            verb = dice.choice(("UPDATE", "UPDATE", "UPDATE OR REPLACE"))
            statement = f"{verb} {table} SET {names[place]}={value} WHERE {where}"
    db.execute(statement)
    return statement[:300]


def _one_more(dice: random.Random, db: sqlite3.Connection, row: Any) -> str:
    """An event more, with a position and an id that no other has, and another run or version."""
    (last,) = db.execute("SELECT max(position) FROM events").fetchone()
    values = [_spelt(value) for value in row]
    values[0] = str(last + dice.randrange(1, 5) if isinstance(last, int) else 10**6)
    values[4] = f"'{UUID(int=dice.getrandbits(128))}'"
    if dice.random() < 0.5:
        values[2] = _spelt(_changed(dice, row[2]))
    values[1] = dice.choice(
        (values[1], _spelt(_changed(dice, row[1])), f"CAST({values[1]} AS BLOB)")
    )
    return f"INSERT INTO events VALUES ({', '.join(values)})"


def _spelt(value: Any) -> str:
    """A value as SQL spells it, text by its bytes."""
    if isinstance(value, _Blob):
        return f"x'{value.hex()}'"
    if isinstance(value, bytes):
        # What was read as text; content and digests are compared by their bytes all the same.
        return f"CAST(x'{value.hex()}' AS TEXT)" if _is_text(value) else f"x'{value.hex()}'"
    return "NULL" if value is None else repr(value)


def _is_text(value: bytes) -> bool:
    try:
        return "\x00" not in value.decode()
    except UnicodeDecodeError:
        return False


class _Blob(bytes):
    """Bytes that are to be stored as such, whatever they spell."""


def _changed(dice: random.Random, value: Any) -> Any:
    if isinstance(value, bytes) and value:
        raw = bytearray(value)
        match dice.randrange(4):
            case 0:
                raw[dice.randrange(len(raw))] = dice.randrange(256)
            case 1:
                raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
            case 2:
                raw.insert(dice.randrange(len(raw) + 1), dice.choice(b' 0a\x00"'))
            case _:
                return dice.choice((b"", 0, 1.5, b"x", _Blob(value), value + b" "))
        return bytes(raw)
    if isinstance(value, int):
        return dice.choice(
            (value + 1, value - 1, -value, 0, 2**62, value + 0.5, str(value).encode())
        )
    return dice.choice((0, b"x", b""))


# --- what a reader sees --------------------------------------------------------------------


def seen_in(ledger: Ledger) -> list[Any]:
    """All that the ledger's readers give: every call that reads, for everything that there is."""
    infos = list(ledger.runs())
    seen: list[Any] = [infos, list(ledger.runs(page_size=2))]
    for info in infos:
        for backwards in (False, True):
            records = ledger.read(info.run_id, backwards=backwards)
            seen.append([_anywhere(record) for record in records])
        seen.append([ledger.head(info.run_id), ledger.run(info.run_id)])
    asked: list[Callable[[], Any]] = [
        *(lambda status=status: ledger.runs(status=status) for status in STATUSES),
        *(lambda prompt=prompt: ledger.runs(prompt=prompt) for prompt in ("ns/key", "")),
        *(lambda tags=tags: ledger.runs(tags=tags) for tags in TAGS),
    ]
    seen += [[info.run_id for info in ask()] for ask in asked]
    everything = list(ledger.tail())
    seen.append(_by_run(everything))
    seen.append(_by_run(list(ledger.tail(page_size=7))))
    seen.append([record.event for record in sorted(everything, key=_place)])
    seen.append({name: ledger.blob(name) for name in ledger.store.blob_names()})
    out = io.BytesIO()
    export_runs(ledger, out)
    seen.append(out.getvalue())
    return seen


def _by_run(records: list[Record]) -> list[Any]:
    return [_anywhere(record) for record in sorted(records, key=_place)]


def _anywhere(record: Record) -> Row:
    return record.row._replace(position=0)


def _place(record: Record) -> tuple[str, str]:
    """By run and version, whatever became of them: how runs are interleaved is not covered."""
    return str(record.row.run_id), f"{record.version!s:>40}"


STATUSES: tuple[Any, ...] = ("running", "waiting", "completed", "failed", "parked", "abandoned")
TAGS: tuple[dict[str, str | None], ...] = (
    {"team": None},
    {"team": "red"},
    {"team": "blue"},
    {"env": "test"},
    {"why": "what if"},
    {"only": None},
)
