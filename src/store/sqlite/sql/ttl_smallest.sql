SELECT min(smallest) FROM idempotency_ttls
