-- $1 rows that have expired.
INSERT INTO plain_keys
    (scoped_key, fingerprint, token, status_code, resource_id, headers, body, expires_at)
SELECT 'idem:v1:' || substr(md5(random()::text), 1, 22), decode(repeat('07', 33), 'hex'),
       gen_random_uuid(), 201, 'ch_01kbbkb13v04hmasw9nf6yy093', '\x00', convert_to(repeat('x', 512), 'UTF8'),
       now() - interval '1 hour' + n * interval '1 ms'
FROM generate_series(1, $1::bigint) AS n
