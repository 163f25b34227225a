-- The partitions of an archive ($1), oldest first. A default one has no bounds.
SELECT name, place,
       coalesce(nullif(bounds[1], 'MINVALUE'), '-infinity')::timestamptz AS begins,
       coalesce(nullif(bounds[2], 'MAXVALUE'), 'infinity')::timestamptz AS ends
FROM (
    SELECT c.relname::text AS name,
           format('%I.%I', n.nspname, c.relname) AS place,
           regexp_match(
               pg_get_expr(c.relpartbound, c.oid),
               'FROM \(''?([^'']+?)''?\) TO \(''?([^'']+?)''?\)'
           ) AS bounds
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE i.inhparent = $1::text::regclass
) AS partition
WHERE bounds IS NOT NULL
ORDER BY begins
