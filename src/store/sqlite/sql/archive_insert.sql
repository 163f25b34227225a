INSERT INTO idempotency_key_archive
    (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (scoped_key, expired_at) DO UPDATE
SET status_code = excluded.status_code,
    resource_id = excluded.resource_id
WHERE idempotency_key_archive.status_code = 0 AND excluded.status_code <> 0
