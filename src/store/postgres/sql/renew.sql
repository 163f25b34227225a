-- Extends the leases that their tokens own and nobody holds locked, in the order
-- of their keys. The upsert always finds the row that was locked before it, by
-- the key's index and without waiting. $5 is the time of a test's clock.
INSERT INTO idempotency_keys AS k
    (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
SELECT asked.scoped_key, fingerprint, asked.token, attempt, created_at, expires_at,
       coalesce($5, clock_timestamp()) + lease, speculative AND NOT confirmed
FROM unnest($1::text[], $2::uuid[], $3::interval[], $4::boolean[])
    AS asked (scoped_key, token, lease, confirmed)
CROSS JOIN LATERAL (
    SELECT fingerprint, attempt, created_at, expires_at, speculative
    FROM idempotency_keys
    WHERE scoped_key = asked.scoped_key
      AND token = asked.token
      AND status_code IS NULL
      AND (expires_at > coalesce($5, clock_timestamp())
           OR lease_until > coalesce($5, clock_timestamp()))
    FOR NO KEY UPDATE SKIP LOCKED
) owned
ON CONFLICT (scoped_key) DO UPDATE
SET lease_until = excluded.lease_until,
    speculative = excluded.speculative
RETURNING scoped_key, lease_until
