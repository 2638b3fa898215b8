-- A ledger of format 1, as the first version made it. Never changed.
CREATE TABLE meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE events (
    position bigint PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    tag text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    recorded_at bigint NOT NULL,
    digest bytea NOT NULL,
    data text COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX events_by_run ON events (run_id, version);
CREATE UNIQUE INDEX events_by_id ON events (event_id);
CREATE TABLE blobs (name text COLLATE "C" PRIMARY KEY, content bytea NOT NULL);
ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE runs (
    run_id text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    digest bytea NOT NULL,
    recorded_at bigint NOT NULL,
    epoch bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    prompt text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    parent_version bigint NOT NULL,
    tags text COLLATE "C" NOT NULL,
    position bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX runs_by_start ON runs (started_at, run_id);
CREATE INDEX runs_by_status ON runs (status, started_at, run_id);
CREATE INDEX runs_by_prompt ON runs (prompt, started_at, run_id);
CREATE TABLE run_tags (
    key text COLLATE "C" NOT NULL, value text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (key, value, run_id)
);
CREATE TABLE leases (
    run_id text COLLATE "C" PRIMARY KEY,
    worker text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    holder text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
) WITH (fillfactor = 70);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
    RAISE EXCEPTION '% are never changed or deleted', TG_TABLE_NAME
                USING ERRCODE = 'restrict_violation';
    END $$;
CREATE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER blobs_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON blobs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE VIEW log AS SELECT position, run_id, version, tag, event_id,
    to_char(to_timestamp(recorded_at / 1e6) AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS recorded_at,
    encode(digest, 'hex') AS digest, data FROM events ORDER BY position;
INSERT INTO meta VALUES
    ('application', 'turnledger'), ('format', '1'), ('catalogue', '1'), ('xid_offset', '0');
