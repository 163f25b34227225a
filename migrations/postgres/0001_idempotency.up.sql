-- Keys are compared byte by byte: batches are sorted the same way by whoever
-- sends them, so that two of them never wait for each other.
CREATE TABLE idempotency_keys (
    scoped_key  text COLLATE "C" NOT NULL PRIMARY KEY,
    fingerprint bytea       NOT NULL,
    token       uuid        NOT NULL,
    attempt     bigint      NOT NULL CHECK (attempt BETWEEN 1 AND 4294967295),
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    lease_until timestamptz,
    speculative boolean     NOT NULL,
    status_code smallint    CHECK (status_code >= 0),
    resource_id text,
    headers     bytea,
    body        bytea,
    -- A record in progress has a lease, a completed one an outcome.
    CHECK ((lease_until IS NULL) <> (status_code IS NULL))
) WITH (fillfactor = 20);

CREATE INDEX idempotency_keys_expires_at ON idempotency_keys (expires_at);

-- Its partitions, one a month, are made and retired while the service runs.
CREATE TABLE idempotency_key_archive (
    scoped_key  text COLLATE "C" NOT NULL,
    fingerprint bytea       NOT NULL,
    status_code smallint    NOT NULL,
    resource_id text,
    created_at  timestamptz NOT NULL,
    expired_at  timestamptz NOT NULL,
    PRIMARY KEY (scoped_key, expired_at)
) PARTITION BY RANGE (expired_at);

-- Spans are microseconds.
CREATE TABLE idempotency_ttls (
    process      uuid        NOT NULL PRIMARY KEY,
    smallest     bigint      NOT NULL,
    largest      bigint      NOT NULL,
    published_at timestamptz NOT NULL
);
