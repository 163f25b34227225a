-- The rows of a partition ($1) and what it takes up with its indexes. Many rows
-- are as many as the statistics have; fewer are counted.
SELECT CASE WHEN reltuples > 100000 THEN reltuples::bigint
            ELSE (SELECT count(*) FROM {table}) END AS counted,
       pg_total_relation_size(oid) AS bytes
FROM pg_class
WHERE oid = $1::text::regclass
