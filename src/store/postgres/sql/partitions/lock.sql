-- One process at a time changes the partitions of an archive ($1); the first
-- half of the number only has to be nobody else's. Returns the archive's schema.
SELECT quote_ident(n.nspname) AS schema
FROM pg_class p
JOIN pg_namespace n ON n.oid = p.relnamespace
CROSS JOIN LATERAL pg_advisory_xact_lock((1159806051::bigint << 32) | p.oid::bigint)
WHERE p.oid = $1::text::regclass
