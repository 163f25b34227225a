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
