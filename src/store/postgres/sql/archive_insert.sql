-- Rows that are there already stay, except that an outcome wins over none. In
-- the order of the keys, so that two insertions never wait for each other.
INSERT INTO idempotency_key_archive AS a
    (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expired_at
FROM unnest($1::text[], $2::bytea[], $3::smallint[], $4::text[], $5::timestamptz[], $6::timestamptz[])
    AS asked (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
ORDER BY scoped_key COLLATE "C", expired_at
ON CONFLICT (scoped_key, expired_at) DO UPDATE
SET status_code = excluded.status_code,
    resource_id = excluded.resource_id
WHERE a.status_code = 0 AND excluded.status_code <> 0
