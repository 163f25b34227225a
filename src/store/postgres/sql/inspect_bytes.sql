-- What a table ($1) takes up with its indexes and its long values.
SELECT pg_total_relation_size($1::text::regclass)
