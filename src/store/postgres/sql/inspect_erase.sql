UPDATE idempotency_keys
SET headers = NULL,
    body    = NULL
WHERE scoped_key = $1
  AND status_code IS NOT NULL
  AND (headers IS NOT NULL OR body IS NOT NULL)
