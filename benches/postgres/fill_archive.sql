-- $1 rows a month, over all months of the archive, in random order of their
-- keys.
INSERT INTO axum_idempotency_bench.idempotency_key_archive
    (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
SELECT 'idem:v1:' || translate(encode(substr(decode(md5(random()::text), 'hex'), 1, 16), 'base64'), '+/=', '-_'),
       decode(repeat('07', 33), 'hex'), 201, 'ch_' || substr(md5(random()::text), 1, 8),
       expired_at - interval '24 hours', expired_at
FROM (
    SELECT date_trunc('month', now()) - month * interval '1 month' + n * interval '1 s' AS expired_at
    FROM generate_series(-2, 36) AS month, generate_series(1, $1::bigint) AS n
) AS rows
