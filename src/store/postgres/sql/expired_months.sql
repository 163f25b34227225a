-- The first expired row of every month that has one, found by as many steps
-- along the index. Months are those of UTC: adding one to a timestamptz would
-- go by the session's time zone. $1 is the time of a test's clock.
WITH RECURSIVE first AS (
    SELECT min(expires_at) AS expires_at
    FROM idempotency_keys
    WHERE expires_at <= (SELECT coalesce($1, clock_timestamp()))
    UNION ALL
    SELECT (
        SELECT min(expires_at)
        FROM idempotency_keys
        WHERE expires_at >= (date_trunc('month', first.expires_at AT TIME ZONE 'UTC')
                             + interval '1 month') AT TIME ZONE 'UTC'
          AND expires_at <= (SELECT coalesce($1, clock_timestamp()))
    )
    FROM first
    WHERE first.expires_at IS NOT NULL
)
SELECT expires_at FROM first WHERE expires_at IS NOT NULL
