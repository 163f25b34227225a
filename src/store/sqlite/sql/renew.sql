-- ?4 is now: a row that is past its time and whose lease has lapsed is expired.
UPDATE idempotency_keys
SET lease_until = ?3,
    speculative = iif(?5, 0, speculative)
WHERE scoped_key = ?1
  AND token = ?2
  AND status_code IS NULL
  AND (expires_at > ?4 OR lease_until > ?4)
