-- The columns of a table ($1), in their order.
SELECT attname::text AS name, format_type(atttypid, atttypmod) AS type
FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
