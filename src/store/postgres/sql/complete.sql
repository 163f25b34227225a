-- Completes the rows that their tokens own and nobody holds locked, in the order
-- of their keys. The upsert always finds the row that was locked before it, by
-- the key's index and without waiting. $7 is the time of a test's clock.
INSERT INTO idempotency_keys AS k
    (scoped_key, fingerprint, token, attempt, created_at, expires_at, speculative,
     status_code, resource_id, headers, body, completed_at)
SELECT asked.scoped_key, fingerprint, asked.token, attempt, created_at, expires_at, false,
       status_code, resource_id, headers, body, coalesce($7, clock_timestamp())
FROM unnest($1::text[], $2::uuid[], $3::smallint[], $4::text[], $5::bytea[], $6::bytea[])
    AS asked (scoped_key, token, status_code, resource_id, headers, body)
CROSS JOIN LATERAL (
    SELECT fingerprint, attempt, created_at, expires_at
    FROM idempotency_keys
    WHERE scoped_key = asked.scoped_key
      AND token = asked.token
      AND idempotency_keys.status_code IS NULL
      AND (expires_at > coalesce($7, clock_timestamp())
           OR lease_until > coalesce($7, clock_timestamp()))
    FOR NO KEY UPDATE SKIP LOCKED
) owned
ON CONFLICT (scoped_key) DO UPDATE
SET status_code  = excluded.status_code,
    resource_id  = excluded.resource_id,
    headers      = excluded.headers,
    body         = excluded.body,
    lease_until  = NULL,
    speculative  = false,
    completed_at = excluded.completed_at
RETURNING scoped_key
