SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expired_at
FROM idempotency_key_archive INDEXED BY idempotency_key_archive_expired_at
ORDER BY expired_at DESC
LIMIT 1
