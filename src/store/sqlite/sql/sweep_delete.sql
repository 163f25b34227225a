DELETE FROM idempotency_keys INDEXED BY idempotency_keys_expires_at
WHERE expires_at <= ?2
  AND (expires_at < ?2 OR rowid <= ?3)
  AND (lease_until IS NULL OR lease_until <= ?1)
