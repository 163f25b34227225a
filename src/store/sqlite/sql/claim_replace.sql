UPDATE idempotency_keys
SET fingerprint  = ?2,
    token        = ?3,
    attempt      = ?4,
    created_at   = ?5,
    expires_at   = ?6,
    lease_until  = ?7,
    speculative  = ?8,
    status_code  = NULL,
    resource_id  = NULL,
    headers      = NULL,
    body         = NULL,
    completed_at = NULL
WHERE scoped_key = ?1
