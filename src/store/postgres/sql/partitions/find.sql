-- The table of a month ($2) beside its archive ($1), if there is one.
SELECT i.inhparent IS NOT NULL AND i.inhparent = p.oid AS is_attached,
       obj_description(c.oid, 'pg_class') AS mark
FROM pg_class p
JOIN pg_class c ON c.relnamespace = p.relnamespace AND c.relname = $2
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE p.oid = $1::text::regclass
