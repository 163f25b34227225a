INSERT INTO plain_keys AS k (scoped_key, fingerprint, token, lease_until, expires_at)
VALUES ($1, $2, $3, now() + interval '30 s', now() + interval '1 day')
ON CONFLICT (scoped_key) DO UPDATE
SET token       = excluded.token,
    lease_until = excluded.lease_until
WHERE k.status_code IS NULL AND k.lease_until < now()
RETURNING token
