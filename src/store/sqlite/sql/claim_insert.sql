INSERT INTO idempotency_keys
    (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (scoped_key) DO NOTHING
