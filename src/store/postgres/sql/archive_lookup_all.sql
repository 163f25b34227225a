-- The same of all partitions. An "OR $2 IS NULL" would ask them all every time.
SELECT fingerprint, status_code, resource_id, created_at, expired_at
FROM idempotency_key_archive
WHERE scoped_key = $1
ORDER BY status_code = 0, expired_at DESC
LIMIT 1
