-- What format 3 added to a ledger of format 2. Never changed.
CREATE TABLE access_tokens (
    token_id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    secret_hash bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint
);
UPDATE meta SET value = '3' WHERE key = 'format';
