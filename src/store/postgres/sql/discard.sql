-- Deletes the oldest expired rows, where there is no archive. $1 is the time of
-- a test's clock.
WITH expired AS MATERIALIZED (
    SELECT ctid AS place
    FROM idempotency_keys
    WHERE expires_at <= (SELECT coalesce($1, clock_timestamp()))
      AND (lease_until IS NULL OR lease_until <= (SELECT coalesce($1, clock_timestamp())))
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM idempotency_keys
    WHERE ctid = ANY (ARRAY(SELECT place FROM expired))
)
SELECT count(*) FROM expired
