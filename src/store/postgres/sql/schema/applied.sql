SELECT version, description, checksum
FROM _axum_idempotency_migrations
WHERE success
ORDER BY version
