DELETE FROM idempotency_ttls
WHERE published_at < ?1 - (SELECT max(largest) FROM idempotency_ttls)
