-- A ledger of format 1, as the first version made it. Never changed.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    tag TEXT NOT NULL,
    event_id TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    digest BLOB NOT NULL,
    data TEXT NOT NULL
);
CREATE UNIQUE INDEX events_by_run ON events (run_id, version);
CREATE UNIQUE INDEX events_by_id ON events (event_id);
CREATE TABLE blobs (name TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE runs (
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
) WITHOUT ROWID;
CREATE INDEX runs_by_start ON runs (started_at, run_id);
CREATE INDEX runs_by_status ON runs (status, started_at, run_id);
CREATE INDEX runs_by_prompt ON runs (prompt, started_at, run_id);
CREATE TABLE run_tags (
    key TEXT NOT NULL, value TEXT NOT NULL, run_id TEXT NOT NULL,
    PRIMARY KEY (key, value, run_id)
) WITHOUT ROWID;
CREATE TABLE leases (
    run_id TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    holder TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER events_refuse_UPDATE BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed or deleted'); END;
CREATE TRIGGER events_refuse_DELETE BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed or deleted'); END;
CREATE TRIGGER blobs_refuse_UPDATE BEFORE UPDATE ON blobs
    BEGIN SELECT RAISE(ABORT, 'blobs are never changed or deleted'); END;
CREATE TRIGGER blobs_refuse_DELETE BEFORE DELETE ON blobs
    BEGIN SELECT RAISE(ABORT, 'blobs are never changed or deleted'); END;
CREATE VIEW log AS SELECT position, run_id, version, tag, event_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at,
    lower(hex(digest)) AS digest, data FROM events ORDER BY position;
INSERT INTO meta VALUES ('catalogue', '1');
PRAGMA application_id = 1414284359;
PRAGMA user_version = 1;
