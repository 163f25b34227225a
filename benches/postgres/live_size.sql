SELECT count(*), pg_total_relation_size('axum_idempotency_bench.idempotency_keys')::float8 / count(*)
FROM axum_idempotency_bench.idempotency_keys
