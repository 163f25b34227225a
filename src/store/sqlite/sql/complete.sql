-- ?7 is now: a row that is past its time and whose lease has lapsed is expired.
UPDATE idempotency_keys
SET status_code  = ?3,
    resource_id  = ?4,
    headers      = ?5,
    body         = ?6,
    lease_until  = NULL,
    speculative  = 0,
    completed_at = ?7
WHERE scoped_key = ?1
  AND token = ?2
  AND status_code IS NULL
  AND (expires_at > ?7 OR lease_until > ?7)
