SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expired_at
FROM {table}
ORDER BY expired_at DESC
LIMIT 1
