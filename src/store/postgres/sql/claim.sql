-- One row a claim, in the order of the keys. Writes what is fresh, and reads
-- what is there without waiting for it. $10 is the time of a test's clock, $11
-- the longest wait for another claim of the same key that is being committed,
-- $12 and $13 the spans ahead from which a key's time is refused and none.
WITH present AS MATERIALIZED (
    SELECT coalesce($10, clock_timestamp()) AS now, set_config('lock_timeout', $11, true)
), asked AS (
    SELECT a.*, now, CASE WHEN key_time <= now + $13 THEN key_time END AS told_time
    FROM present, unnest(
        $1::text[], $2::bytea[], $3::uuid[], $4::interval[], $5::interval[],
        $6::timestamptz[], $7::interval[], $8::boolean[], $9::boolean[]
    ) AS a (
        scoped_key, new_fingerprint, new_token, lease, ttl,
        key_time, lookup_after, all_keys, required
    )
), met AS MATERIALIZED (
    SELECT asked.*, told_time > now + $12 AS is_ahead, k.*
    FROM asked LEFT JOIN LATERAL (
        SELECT fingerprint, token, attempt, created_at, expires_at, lease_until, speculative,
               status_code, resource_id, headers, body
        FROM idempotency_keys
        WHERE scoped_key = asked.scoped_key
        LIMIT 1
    ) k ON true
), written AS (
    INSERT INTO idempotency_keys
        (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
    SELECT scoped_key, new_fingerprint, new_token, 1, now, greatest(now, told_time) + ttl,
           coalesce($10, clock_timestamp()) + lease,
           lookup_after IS NOT NULL
               AND CASE WHEN is_ahead OR told_time IS NULL THEN all_keys
                        ELSE now - told_time > lookup_after END
    FROM met
    WHERE token IS NULL
      AND NOT CASE WHEN told_time IS NULL THEN required ELSE is_ahead AND NOT all_keys END
    ORDER BY scoped_key
    ON CONFLICT (scoped_key) DO NOTHING
    RETURNING scoped_key, expires_at, lease_until, speculative
)
SELECT scoped_key, met.now,
       written.expires_at AS written_expires_at,
       written.lease_until AS written_lease_until,
       written.speculative AS written_speculative,
       met.fingerprint, met.token, met.attempt, met.created_at, met.expires_at, met.lease_until,
       met.speculative, met.status_code, met.resource_id, met.headers, met.body
FROM met LEFT JOIN written USING (scoped_key)
