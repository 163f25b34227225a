-- The rows of a partition ($1): counted as far as that is quick, else as the
-- statistics have them.
SELECT CASE WHEN counted < 10000 THEN counted ELSE greatest(counted, estimated) END
FROM (SELECT count(*) AS counted FROM (SELECT FROM {table} LIMIT 10000) AS first) AS exact,
     (SELECT reltuples::bigint AS estimated FROM pg_class WHERE oid = $1::text::regclass) AS about
