-- Writes over rows that are still as they were read, and that nobody holds
-- locked. Which fresh row an upsert would write never matters: a row that was
-- locked here is there. $14 is the time of a test's clock.
WITH asked AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::boolean[],
        $6::boolean[], $7::bytea[], $8::uuid[], $9::bigint[], $10::timestamptz[],
        $11::timestamptz[], $12::interval[], $13::boolean[]
    ) AS a (
        scoped_key, met_token, met_expires_at, met_lease_until, met_speculative,
        met_completed, fingerprint, token, attempt, created_at, expires_at, lease, speculative
    )
), locked AS MATERIALIZED (
    SELECT asked.*
    FROM asked CROSS JOIN LATERAL (
        SELECT
        FROM idempotency_keys
        WHERE scoped_key = asked.scoped_key
          AND token = asked.met_token
          AND expires_at = asked.met_expires_at
          AND lease_until IS NOT DISTINCT FROM asked.met_lease_until
          AND speculative = asked.met_speculative
          AND (status_code IS NOT NULL) = asked.met_completed
        FOR NO KEY UPDATE SKIP LOCKED
    ) k
)
INSERT INTO idempotency_keys AS k
    (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
SELECT scoped_key, fingerprint, token, attempt, created_at, expires_at,
       coalesce($14, clock_timestamp()) + lease, speculative
FROM locked
ORDER BY scoped_key
ON CONFLICT (scoped_key) DO UPDATE
SET fingerprint  = excluded.fingerprint,
    token        = excluded.token,
    attempt      = excluded.attempt,
    created_at   = excluded.created_at,
    expires_at   = excluded.expires_at,
    lease_until  = excluded.lease_until,
    speculative  = excluded.speculative,
    status_code  = NULL,
    resource_id  = NULL,
    headers      = NULL,
    body         = NULL,
    completed_at = NULL
RETURNING scoped_key, lease_until
