-- $1 rows that have expired.
INSERT INTO axum_idempotency_bench.idempotency_keys
    (scoped_key, fingerprint, token, attempt, created_at, expires_at, speculative,
     status_code, resource_id, headers, body)
SELECT 'idem:v1:' || translate(encode(substr(decode(md5(random()::text), 'hex'), 1, 16), 'base64'), '+/=', '-_'),
       decode(repeat('07', 33), 'hex'), gen_random_uuid(), 1, now() - interval '25 hours',
       now() - interval '1 hour' + n * interval '1 ms', false,
       201, 'ch_01kbbkb13v04hmasw9nf6yy093', '\x00', convert_to(repeat('x', 512), 'UTF8')
FROM generate_series(1, $1::bigint) AS n
