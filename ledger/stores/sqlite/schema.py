"""SQLite schema: tables, how they are made and upgraded, and checks for changes to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

from turnledger.ledger.errors import NotALedgerError
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.stores.sql import END

APPLICATION_ID = 0x544C4447  # "TLDG"
SCHEMA_VERSION = 4
# Where nothing can be written, a ledger of an older format is read as it is, from this one on.
OLDEST_READABLE = 2

_SHELVES = (
    """CREATE TABLE shelves (
        name TEXT PRIMARY KEY,
        fingerprint TEXT NOT NULL,
        generation INTEGER NOT NULL,
        position INTEGER NOT NULL,
        state TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE shelf_rows (
        shelf TEXT NOT NULL, generation INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (shelf, generation, key)
    ) WITHOUT ROWID""",
)
_TOKENS = (
    """CREATE TABLE access_tokens (
        token_id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        secret_hash BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    ) WITHOUT ROWID""",
)
# By what a run is looked for: the end of its id, and the run that it is a fork of.
END_OF_ID = f"substr(run_id, -{END})"
_FINDING = (
    f"CREATE INDEX runs_by_end ON runs ({END_OF_ID})",
    "CREATE INDEX runs_by_parent ON runs (parent, started_at, run_id) WHERE parent IS NOT NULL",
)
# The statements that upgrade a file of a format to the next one.
_UPGRADES = {1: _SHELVES, 2: _TOKENS, 3: _FINDING}
# What a file of an older format, which is only read, does not have: the format that brought it.
TOKENS_SINCE = 3
_SINCE = {"access_tokens": TOKENS_SINCE, "runs_by_end": 4, "runs_by_parent": 4}

TABLES = (
    """CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        tag TEXT NOT NULL,
        event_id TEXT NOT NULL,
        recorded_at INTEGER NOT NULL,
        digest BLOB NOT NULL,
        data TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX events_by_run ON events (run_id, version)",
    "CREATE UNIQUE INDEX events_by_id ON events (event_id)",
    "CREATE TABLE blobs (name TEXT PRIMARY KEY, content BLOB NOT NULL)",
    """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        digest BLOB NOT NULL,
        recorded_at INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        status TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        prompt TEXT NOT NULL,
        kind TEXT NOT NULL,
        parent TEXT,
        parent_version INTEGER NOT NULL,
        tags TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX runs_by_start ON runs (started_at, run_id)",
    "CREATE INDEX runs_by_status ON runs (status, started_at, run_id)",
    "CREATE INDEX runs_by_prompt ON runs (prompt, started_at, run_id)",
    """CREATE TABLE run_tags (
        key TEXT NOT NULL, value TEXT NOT NULL, run_id TEXT NOT NULL,
        PRIMARY KEY (key, value, run_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE leases (
        run_id TEXT PRIMARY KEY,
        worker TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        holder TEXT NOT NULL,
        expires_at INTEGER NOT NULL
    ) WITHOUT ROWID""",
    *(
        f"""CREATE TRIGGER {table}_refuse_{action} BEFORE {action} ON {table}
            BEGIN SELECT RAISE(ABORT, '{table} are never changed or deleted'); END"""
        for table in ("events", "blobs")
        for action in ("UPDATE", "DELETE")
    ),
    """CREATE VIEW log AS SELECT position, run_id, version, tag, event_id,
        strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at,
        lower(hex(digest)) AS digest, data FROM events ORDER BY position""",
    *_SHELVES,
    *_TOKENS,
    *_FINDING,
)

_NO_TEXT = "no text: "


def as_text(column: str) -> str:
    """SQL for a column as text; a value of another type is marked, even if its bytes agree."""
    return f"CASE typeof({column}) WHEN 'text' THEN {column} ELSE '{_NO_TEXT}' || hex({column}) END"


def stored_bytes(text: bytes) -> bytes | None:
    """The bytes of a value that `as_text` has marked; None for text."""
    if not text.startswith(_NO_TEXT.encode()):
        return None
    try:
        return bytes.fromhex(text[len(_NO_TEXT) :].decode())
    except ValueError:
        return None


# The columns of a row for a verification.
RAW_ROW = (
    f"position, {as_text('run_id')}, version, {as_text('tag')}, {as_text('event_id')}, "
    "recorded_at, CASE typeof(digest) WHEN 'blob' THEN digest ELSE 'no blob: ' || hex(digest) END, "
    f"{as_text('data')}"
)


def make_tables(db: sqlite3.Connection) -> None:
    """Make an empty file a ledger."""
    db.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('catalogue', ?)", (str(CATALOGUE),))
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    db.execute("COMMIT")


def format_of(db: sqlite3.Connection, path: Path) -> int:
    """A ledger's format, which is this program's or can be upgraded to it."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise NotALedgerError(
            f"{path} is an SQLite database, but not a ledger: "
            "it was left as it was. Choose another file."
        )
    if schema != SCHEMA_VERSION and schema not in _UPGRADES:
        raise NotALedgerError(
            f"{path} has ledger format {schema}, this program uses "
            f"{SCHEMA_VERSION}. Use a turnledger that knows that format."
        )
    return int(schema)


def upgrade(db: sqlite3.Connection, found: int) -> None:
    """Upgrade a ledger to this program's format."""
    for version in range(found, SCHEMA_VERSION):
        db.execute("BEGIN IMMEDIATE")
        for statement in _UPGRADES[version]:
            db.execute(statement)
        db.execute(f"PRAGMA user_version={version + 1}")
        db.execute("COMMIT")


@cache
def _made() -> dict[str, tuple[str, str]]:
    """The schema that this program makes: kind and definition by name."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_tables(db)
        return _schema(db)


def _schema(db: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    rows = db.execute(
        "SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_master"
    )
    texts = ([(text or b"").decode("utf-8", "backslashreplace") for text in row] for row in rows)
    # Older versions indented their statements differently.
    return {name: (kind, " ".join(sql.split())) for kind, name, sql in texts}


def changed_schema(db: sqlite3.Connection) -> Iterator[str]:
    """Differences from the schema that this program makes, one text each.

    Tables and indexes of other programs are left alone; their triggers and views act on what we
    read, so they count.
    """
    found = _schema(db)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    for name, (kind, definition) in _made().items():
        if version < _SINCE.get(name, 0):
            continue
        if name not in found:
            yield f"the {kind} {name} is missing"
        elif found[name][0] != kind:
            yield f"{name} is a {found[name][0]}, and should be a {kind}"
        elif found[name][1] != definition:
            yield f"the {kind} {name} is not defined as this program does"
    for name, (kind, _) in found.items():
        if kind in ("trigger", "view") and name not in _made():
            yield f"the {kind} {name!r:.80} is not the ledger's"
