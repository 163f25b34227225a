SELECT fingerprint, token, attempt, created_at, expires_at, lease_until, speculative,
       status_code, resource_id, headers, body
FROM idempotency_keys
WHERE scoped_key = $1
