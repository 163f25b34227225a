SELECT scoped_key, fingerprint, coalesce(status_code, 0) AS status_code, resource_id, created_at,
       expires_at AS expired_at, token, speculative
FROM idempotency_keys INDEXED BY idempotency_keys_expires_at
WHERE expires_at <= ?1 AND (lease_until IS NULL OR lease_until <= ?1)
ORDER BY expires_at, rowid
