SELECT count(*)
FROM idempotency_keys INDEXED BY idempotency_keys_expires_at
WHERE expires_at <= ?1 AND (lease_until IS NULL OR lease_until <= ?1)
