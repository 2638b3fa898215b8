-- What format 2 added to a ledger of format 1. Never changed.
CREATE TABLE shelves (
    name TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    generation INTEGER NOT NULL,
    position INTEGER NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE shelf_rows (
    shelf TEXT NOT NULL, generation INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (shelf, generation, key)
) WITHOUT ROWID;
PRAGMA user_version = 2;
