-- One row a claim, in the order of the keys. Writes what is fresh, and reads
-- what is there without waiting for it. $10 is the time of a test's clock, $11
-- the longest wait for another claim of the same key that is being committed,
-- $12 and $13 the spans ahead from which a key's time is refused and none.
WITH waiting AS MATERIALIZED (
    SELECT set_config('lock_timeout', $11, true)
), asked AS MATERIALIZED (
    SELECT a.*, coalesce($10, clock_timestamp()) AS now
    FROM waiting, unnest(
        $1::text[], $2::bytea[], $3::uuid[], $4::interval[], $5::interval[],
        $6::timestamptz[], $7::interval[], $8::boolean[], $9::boolean[]
    ) AS a (
        scoped_key, fingerprint, token, lease, ttl,
        key_time, lookup_after, all_keys, required
    )
), told AS (
    SELECT *, CASE WHEN key_time <= now + $13 THEN key_time END AS told_time
    FROM asked
), judged AS (
    SELECT *, told_time > now + $12 AS ahead
    FROM told
), met AS MATERIALIZED (
    SELECT asked.scoped_key, k.*
    FROM asked CROSS JOIN LATERAL (
        SELECT fingerprint, token, attempt, created_at, expires_at, lease_until, speculative,
               status_code, resource_id, headers, body
        FROM idempotency_keys
        WHERE scoped_key = asked.scoped_key
        LIMIT 1
    ) k
), written AS (
    INSERT INTO idempotency_keys
        (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
    SELECT scoped_key, fingerprint, token, 1, now, greatest(now, told_time) + ttl,
           coalesce($10, clock_timestamp()) + lease,
           lookup_after IS NOT NULL
               AND CASE WHEN ahead THEN all_keys
                        WHEN told_time IS NULL THEN all_keys
                        ELSE now - told_time > lookup_after END
    FROM judged
    WHERE NOT CASE WHEN told_time IS NULL THEN required ELSE ahead AND NOT all_keys END
      AND NOT EXISTS (SELECT FROM met WHERE met.scoped_key = judged.scoped_key)
    ORDER BY scoped_key
    ON CONFLICT (scoped_key) DO NOTHING
    RETURNING scoped_key, expires_at, lease_until, speculative
)
SELECT asked.scoped_key, asked.now,
       written.expires_at AS written_expires_at,
       written.lease_until AS written_lease_until,
       written.speculative AS written_speculative,
       met.fingerprint, met.token, met.attempt, met.created_at, met.expires_at, met.lease_until,
       met.speculative, met.status_code, met.resource_id, met.headers, met.body
FROM asked
LEFT JOIN written USING (scoped_key)
LEFT JOIN met USING (scoped_key)
