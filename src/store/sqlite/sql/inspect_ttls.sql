-- Those in force, by the rule of ttl_forget.sql.
SELECT min(smallest) AS smallest, max(largest) AS largest
FROM idempotency_ttls
WHERE published_at >= ?1 - (SELECT max(largest) FROM idempotency_ttls)
