-- Another token, so that whatever the attempt still does finds itself fenced.
UPDATE idempotency_keys
SET lease_until = min(lease_until, ?3),
    token       = randomblob(16)
WHERE scoped_key = ?1 AND token = ?2 AND status_code IS NULL AND attempt > 1
