-- $1 rows that have expired, as they are claimed.
INSERT INTO axum_idempotency_bench.idempotency_keys
    (scoped_key, fingerprint, token, attempt, created_at, expires_at, lease_until, speculative)
SELECT 'idem:v1:' || translate(encode(substr(decode(md5(random()::text), 'hex'), 1, 16), 'base64'), '+/=', '-_'),
       decode(repeat('07', 33), 'hex'), gen_random_uuid(), 1, now() - interval '25 hours',
       now() - interval '1 hour' + n * interval '1 ms', now() - interval '1 hour', false
FROM generate_series(1, $1::bigint) AS n
