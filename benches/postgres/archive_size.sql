SELECT sum(pg_relation_size(relid))::float8 / sum(rows), sum(pg_total_relation_size(relid))::float8 / sum(rows)
FROM pg_partition_tree('axum_idempotency_bench.idempotency_key_archive'),
     LATERAL (SELECT reltuples AS rows FROM pg_class WHERE oid = relid) AS counted
WHERE isleaf AND rows > 0
