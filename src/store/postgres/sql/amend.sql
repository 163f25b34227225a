-- Another token, so that the attempt that lapsed does not take the outcome for
-- its own. $6 is the time of a test's clock.
UPDATE idempotency_keys
SET status_code  = $2,
    resource_id  = $3,
    headers      = $4,
    body         = $5,
    lease_until  = NULL,
    token        = gen_random_uuid(),
    completed_at = coalesce($6, clock_timestamp())
WHERE scoped_key = $1
  AND status_code IS NULL
  AND lease_until <= coalesce($6, clock_timestamp())
  AND NOT speculative
