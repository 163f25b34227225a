SELECT count(*)
FROM idempotency_key_archive INDEXED BY idempotency_key_archive_expired_at
WHERE expired_at >= ?1
