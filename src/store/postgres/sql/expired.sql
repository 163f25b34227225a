SELECT scoped_key, fingerprint, coalesce(status_code, 0::smallint) AS status_code, resource_id,
       created_at, expires_at AS expired_at, token, speculative
FROM idempotency_keys
WHERE expires_at <= (SELECT coalesce($1, clock_timestamp()))
  AND (lease_until IS NULL OR lease_until <= (SELECT coalesce($1, clock_timestamp())))
ORDER BY expires_at
LIMIT $2
