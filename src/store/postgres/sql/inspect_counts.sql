-- In one pass; a row that joins nothing is counted nowhere. $1 is the time of a
-- test's clock.
SELECT now,
       count(*) FILTER (WHERE lease_until > now) AS running,
       count(*) FILTER (WHERE lease_until <= now AND expires_at > now) AS lapsed,
       count(*) FILTER (WHERE lease_until IS NULL AND expires_at > now) AS completed,
       count(*) FILTER (WHERE expires_at <= now AND (lease_until IS NULL OR lease_until <= now))
           AS expired,
       min(expires_at) FILTER (WHERE expires_at <= now AND (lease_until IS NULL OR lease_until <= now))
           AS oldest_expired
FROM (SELECT coalesce($1, clock_timestamp()) AS now OFFSET 0) AS present
LEFT JOIN idempotency_keys ON true
GROUP BY now
