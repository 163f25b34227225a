-- Times are microseconds since 1970, by the clock of the store.

CREATE TABLE idempotency_keys (
    scoped_key  TEXT    NOT NULL PRIMARY KEY,
    fingerprint BLOB    NOT NULL,
    token       BLOB    NOT NULL CHECK (length(token) = 16),
    attempt     INTEGER NOT NULL CHECK (attempt BETWEEN 1 AND 4294967295),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    lease_until INTEGER,
    speculative INTEGER NOT NULL CHECK (speculative IN (0, 1)),
    status_code INTEGER CHECK (status_code BETWEEN 0 AND 65535),
    resource_id TEXT,
    headers     BLOB,
    body        BLOB,
    -- A record in progress has a lease, a completed one an outcome.
    CHECK ((lease_until IS NULL) <> (status_code IS NULL))
) STRICT;

CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);

-- Rows are small and read by key alone, so that the key's own tree holds them.
CREATE TABLE idempotency_key_archive (
    scoped_key  TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    status_code INTEGER NOT NULL,
    resource_id TEXT,
    created_at  INTEGER NOT NULL,
    expired_at  INTEGER NOT NULL,
    PRIMARY KEY (scoped_key, expired_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_key_archive_expired_at ON idempotency_key_archive (expired_at);

CREATE TABLE idempotency_ttls (
    process      BLOB    NOT NULL PRIMARY KEY,
    smallest     INTEGER NOT NULL,
    largest      INTEGER NOT NULL,
    published_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
