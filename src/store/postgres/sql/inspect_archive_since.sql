SELECT count(*) FROM idempotency_key_archive WHERE expired_at >= $1
