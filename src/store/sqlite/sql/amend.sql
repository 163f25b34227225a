-- Another token, so that the attempt that lapsed does not take the outcome for
-- its own.
UPDATE idempotency_keys
SET status_code  = ?2,
    resource_id  = ?3,
    headers      = ?4,
    body         = ?5,
    lease_until  = NULL,
    token        = randomblob(16),
    completed_at = ?6
WHERE scoped_key = ?1 AND status_code IS NULL AND lease_until <= ?6 AND speculative = 0
