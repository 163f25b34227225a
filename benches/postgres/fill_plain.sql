-- $1 rows that have expired, as they are claimed.
INSERT INTO plain_keys (scoped_key, fingerprint, token, lease_until, expires_at)
SELECT 'idem:v1:' || substr(md5(random()::text), 1, 22), decode(repeat('07', 33), 'hex'),
       gen_random_uuid(), now() - interval '1 hour', now() - interval '1 hour' + n * interval '1 ms'
FROM generate_series(1, $1::bigint) AS n
