-- Completes the row that the transaction has locked, however late that is.
UPDATE idempotency_keys
SET status_code = $3,
    resource_id = $4,
    headers     = $5,
    body        = $6,
    lease_until = NULL,
    speculative = false
WHERE scoped_key = $1
  AND token = $2
  AND status_code IS NULL
