-- Gives claims back: a first attempt's row goes, a later one's lapses under
-- another token, so that whatever the attempt still does finds itself fenced.
-- $3 is the time of a test's clock.
WITH asked AS MATERIALIZED (
    SELECT *
    FROM unnest($1::text[], $2::uuid[]) AS a (scoped_key, token)
), owned AS MATERIALIZED (
    SELECT asked.scoped_key, k.*
    FROM asked CROSS JOIN LATERAL (
        SELECT ctid AS place, fingerprint, attempt, created_at, expires_at, lease_until, speculative
        FROM idempotency_keys
        WHERE scoped_key = asked.scoped_key AND token = asked.token AND status_code IS NULL
        FOR UPDATE SKIP LOCKED
    ) k
), gone AS (
    DELETE FROM idempotency_keys
    WHERE ctid = ANY (ARRAY(SELECT place FROM owned WHERE attempt = 1))
    RETURNING scoped_key
), lapsed AS (
    INSERT INTO idempotency_keys AS k
        (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
    SELECT scoped_key, fingerprint, gen_random_uuid(), attempt, created_at, expires_at,
           least(lease_until, coalesce($3, clock_timestamp())), speculative
    FROM owned
    WHERE attempt > 1
    ORDER BY scoped_key
    ON CONFLICT (scoped_key) DO UPDATE
    SET token       = excluded.token,
        lease_until = excluded.lease_until
    RETURNING scoped_key
)
SELECT scoped_key FROM gone
UNION ALL
SELECT scoped_key FROM lapsed
