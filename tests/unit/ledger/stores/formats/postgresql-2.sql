-- What format 2 added to a ledger of format 1. Never changed.
CREATE TABLE shelves (
    name text COLLATE "C" PRIMARY KEY,
    fingerprint text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    position bigint NOT NULL,
    state text COLLATE "C" NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE shelf_rows (
    shelf text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (shelf, generation, key)
) WITH (fillfactor = 70);
UPDATE meta SET value = '2' WHERE key = 'format';
