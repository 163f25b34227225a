-- A table that was detached to be dropped, as its mark ($1) says.
SELECT format('%I.%I', n.nspname, c.relname)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
  AND NOT c.relispartition
  AND obj_description(c.oid, 'pg_class') = $1
LIMIT 1
