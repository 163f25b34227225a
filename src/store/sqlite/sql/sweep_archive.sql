INSERT INTO idempotency_key_archive
    (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
SELECT scoped_key, fingerprint, coalesce(status_code, 0), resource_id, created_at, expires_at
FROM idempotency_keys INDEXED BY idempotency_keys_expires_at
WHERE expires_at <= ?2
  AND (expires_at < ?2 OR rowid <= ?3)
  AND (lease_until IS NULL OR lease_until <= ?1)
  AND speculative = 0
ON CONFLICT (scoped_key, expired_at) DO UPDATE
SET status_code = excluded.status_code,
    resource_id = excluded.resource_id
WHERE idempotency_key_archive.status_code = 0 AND excluded.status_code <> 0
