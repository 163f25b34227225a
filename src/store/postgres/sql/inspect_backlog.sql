SELECT count(*)
FROM idempotency_keys
WHERE expires_at <= (SELECT coalesce($1, clock_timestamp()))
  AND (lease_until IS NULL OR lease_until <= (SELECT coalesce($1, clock_timestamp())))
