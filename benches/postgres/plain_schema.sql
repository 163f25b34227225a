DROP TABLE IF EXISTS plain_keys;
CREATE TABLE plain_keys (
    scoped_key  text PRIMARY KEY,
    fingerprint bytea NOT NULL,
    token       uuid NOT NULL,
    status_code smallint,
    lease_until timestamptz,
    resource_id text,
    headers     bytea,
    body        bytea,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX ON plain_keys (expires_at);
DROP TABLE IF EXISTS plain_archive;
CREATE TABLE plain_archive (
    scoped_key  text        NOT NULL,
    fingerprint bytea       NOT NULL,
    status_code smallint    NOT NULL,
    resource_id text,
    created_at  timestamptz NOT NULL,
    expired_at  timestamptz NOT NULL,
    PRIMARY KEY (scoped_key, expired_at)
) PARTITION BY RANGE (expired_at);
CREATE TABLE plain_archive_all PARTITION OF plain_archive FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
DROP SCHEMA IF EXISTS axum_idempotency_bench CASCADE;
