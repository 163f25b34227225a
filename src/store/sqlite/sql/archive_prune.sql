DELETE FROM idempotency_key_archive
WHERE (scoped_key, expired_at) IN (
    SELECT scoped_key, expired_at
    FROM idempotency_key_archive INDEXED BY idempotency_key_archive_expired_at
    WHERE expired_at <= ?1
    ORDER BY expired_at
    LIMIT ?2
)
