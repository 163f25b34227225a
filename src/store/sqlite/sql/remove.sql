DELETE FROM idempotency_keys
WHERE scoped_key = ?1
  AND token = ?2
  AND expires_at = ?3
  AND coalesce(status_code, 0) = ?4
  AND expires_at <= ?5
  AND (lease_until IS NULL OR lease_until <= ?5)
