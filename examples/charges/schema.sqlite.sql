CREATE TABLE IF NOT EXISTS charges (
    id               TEXT PRIMARY KEY,
    principal        BLOB NOT NULL,
    amount           INTEGER NOT NULL,
    refunded         INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
    currency         TEXT NOT NULL,
    client_reference TEXT,
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- The guarantee that outlives every key: per caller, one charge a reference.
CREATE UNIQUE INDEX IF NOT EXISTS charges_reference ON charges (principal, client_reference);

CREATE TABLE IF NOT EXISTS refunds (
    id         TEXT PRIMARY KEY,
    principal  BLOB NOT NULL,
    charge     TEXT NOT NULL REFERENCES charges (id),
    amount     INTEGER NOT NULL,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

CREATE TABLE IF NOT EXISTS payouts (
    id         TEXT PRIMARY KEY,
    principal  BLOB NOT NULL,
    amount     INTEGER NOT NULL,
    currency   TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;
