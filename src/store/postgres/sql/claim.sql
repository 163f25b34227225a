-- Claims in the order of their keys. Writes what is fresh, and reads what is
-- there without waiting for it. A row for each, except for one that another
-- claim wrote after this one had looked. $10 is the time of a test's clock, $11
-- and $12 the spans ahead from which a key's time is refused and none, $13 the
-- longest wait for another claim of a key that is just being committed: not for
-- the table, which was locked before this is read.
WITH met AS MATERIALIZED (
    SELECT a.*, k.*,
           CASE WHEN told_time IS NULL THEN required
                ELSE told_time > now + $11 AND NOT all_keys END AS refused
    FROM (
        SELECT *, CASE WHEN key_time <= now + $12 THEN key_time END AS told_time
        FROM (
            SELECT asked.*, coalesce($10, clock_timestamp()) AS now
            FROM (SELECT set_config('lock_timeout', $13, true) OFFSET 0) AS waits, unnest(
                $1::text[], $2::bytea[], $3::uuid[], $4::interval[], $5::interval[],
                $6::timestamptz[], $7::interval[], $8::boolean[], $9::boolean[]
            ) AS asked (
                scoped_key, new_fingerprint, new_token, lease, ttl,
                key_time, lookup_after, all_keys, required
            )
        ) asked
    ) a LEFT JOIN LATERAL (
        SELECT fingerprint, token, attempt, created_at, expires_at, lease_until, speculative,
               status_code, resource_id, headers, body
        FROM idempotency_keys
        WHERE scoped_key = a.scoped_key
        LIMIT 1
    ) k ON true
), written AS (
    INSERT INTO idempotency_keys
        (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
    SELECT scoped_key, new_fingerprint, new_token, 1, now, greatest(now, told_time) + ttl,
           coalesce($10, clock_timestamp()) + lease,
           lookup_after IS NOT NULL
               AND CASE WHEN told_time <= now + $11
                        THEN now - told_time > lookup_after
                             OR (all_keys OR required) AND lookup_after = interval '0'
                        ELSE all_keys END
    FROM met
    WHERE token IS NULL AND NOT refused
    ON CONFLICT (scoped_key) DO NOTHING
    RETURNING scoped_key, created_at, expires_at, lease_until, speculative
)
SELECT true AS is_written, scoped_key, created_at AS now,
       NULL AS fingerprint, NULL AS token, NULL AS attempt, created_at, expires_at, lease_until,
       speculative, NULL AS status_code, NULL AS resource_id, NULL AS headers, NULL AS body
FROM written
UNION ALL
SELECT false, scoped_key, now,
       fingerprint, token, attempt, created_at, expires_at, lease_until,
       speculative, status_code, resource_id, headers, body
FROM met
WHERE token IS NOT NULL OR refused
