-- Sent as one message, this is one transaction. IF NOT EXISTS alone is a race
-- between processes that start together: they queue here.
SELECT pg_advisory_xact_lock(hashtextextended('charges: schema', 0));

CREATE TABLE IF NOT EXISTS charges (
    id               TEXT PRIMARY KEY,
    principal        BYTEA NOT NULL,
    amount           BIGINT NOT NULL,
    refunded         BIGINT NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
    currency         TEXT NOT NULL,
    client_reference TEXT,
    created_at       TEXT NOT NULL
        DEFAULT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
);

-- The guarantee that outlives every key: per caller, one charge a reference.
CREATE UNIQUE INDEX IF NOT EXISTS charges_reference ON charges (principal, client_reference);

CREATE TABLE IF NOT EXISTS refunds (
    id         TEXT PRIMARY KEY,
    principal  BYTEA NOT NULL,
    charge     TEXT NOT NULL REFERENCES charges (id),
    amount     BIGINT NOT NULL,
    created_at TEXT NOT NULL
        DEFAULT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
);

CREATE TABLE IF NOT EXISTS payouts (
    id         TEXT PRIMARY KEY,
    principal  BYTEA NOT NULL,
    amount     BIGINT NOT NULL,
    currency   TEXT NOT NULL,
    created_at TEXT NOT NULL
        DEFAULT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
);
