SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expired_at
FROM idempotency_key_archive
WHERE scoped_key = $1
ORDER BY expired_at
