"""The tables of a ledger in SQLite, readable with the `sqlite3` shell.

The database itself refuses to change or delete an event or a blob.
"""

from __future__ import annotations

APPLICATION_ID = 0x544C4447  # "TLDG"
SCHEMA_VERSION = 1

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
)

ROW = "position, run_id, version, tag, event_id, recorded_at, digest, data"
RUN = (
    "run_id, version, digest, recorded_at, epoch, status, started_at, prompt, kind, "
    "parent, parent_version, tags"
)
