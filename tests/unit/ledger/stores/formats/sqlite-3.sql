-- What format 3 added to a ledger of format 2. Never changed.
CREATE TABLE access_tokens (
    token_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    secret_hash BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) WITHOUT ROWID;
PRAGMA user_version = 3;
