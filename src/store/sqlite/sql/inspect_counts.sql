SELECT count(*) FILTER (WHERE lease_until > ?1) AS running,
       count(*) FILTER (WHERE lease_until <= ?1 AND expires_at > ?1) AS lapsed,
       count(*) FILTER (WHERE lease_until IS NULL AND expires_at > ?1) AS completed,
       count(*) FILTER (WHERE is_expired) AS expired,
       min(expires_at) FILTER (WHERE is_expired) AS oldest_expired
FROM (
    SELECT lease_until, expires_at,
           expires_at <= ?1 AND (lease_until IS NULL OR lease_until <= ?1) AS is_expired
    FROM idempotency_keys
)
