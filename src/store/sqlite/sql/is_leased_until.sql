SELECT 1
FROM idempotency_keys
WHERE scoped_key = ?1 AND token = ?2 AND status_code IS NULL AND lease_until = ?3
