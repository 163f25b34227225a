SELECT count(*) FROM idempotency_key_archive
