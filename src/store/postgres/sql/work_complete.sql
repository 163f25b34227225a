-- Completes the row that the transaction has locked, however late that is. $7 is
-- the time of a test's clock.
UPDATE idempotency_keys
SET status_code  = $3,
    resource_id  = $4,
    headers      = $5,
    body         = $6,
    lease_until  = NULL,
    speculative  = false,
    completed_at = coalesce($7, clock_timestamp())
WHERE scoped_key = $1
  AND token = $2
  AND status_code IS NULL
