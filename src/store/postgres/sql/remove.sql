-- The rows that were archived, those that are still the same and expired.
-- $5 is the time of a test's clock.
WITH swept AS MATERIALIZED (
    SELECT k.place
    FROM unnest($1::text[], $2::uuid[], $3::timestamptz[], $4::smallint[])
        AS asked (scoped_key, token, expired_at, status_code)
    CROSS JOIN LATERAL (
        SELECT ctid AS place
        FROM idempotency_keys
        WHERE scoped_key = asked.scoped_key
          AND token = asked.token
          AND expires_at = asked.expired_at
          AND coalesce(status_code, 0) = asked.status_code
          AND expires_at <= coalesce($5, clock_timestamp())
          AND (lease_until IS NULL OR lease_until <= coalesce($5, clock_timestamp()))
        FOR UPDATE SKIP LOCKED
    ) k
)
DELETE FROM idempotency_keys
WHERE ctid = ANY (ARRAY(SELECT place FROM swept))
