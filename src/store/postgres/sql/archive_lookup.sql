-- A row with an outcome before one without, then the latest. The bound leaves
-- the partitions before it out.
SELECT fingerprint, status_code, resource_id, created_at, expired_at
FROM idempotency_key_archive
WHERE scoped_key = $1 AND expired_at >= $2
ORDER BY status_code = 0, expired_at DESC
LIMIT 1
