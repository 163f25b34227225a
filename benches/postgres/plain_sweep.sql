WITH expired AS (
    SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expires_at
    FROM plain_keys
    WHERE expires_at < now()
    ORDER BY expires_at
    LIMIT 10000
    FOR UPDATE SKIP LOCKED
), archived AS (
    INSERT INTO plain_archive
        (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
    SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expires_at
    FROM expired
    ON CONFLICT (scoped_key, expired_at) DO NOTHING
    RETURNING scoped_key
)
DELETE FROM plain_keys k
USING archived a
WHERE k.scoped_key = a.scoped_key
