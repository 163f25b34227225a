-- Whether a migration (?1) of a later version only adds.
SELECT description LIKE 'additive%'
FROM _axum_idempotency_migrations
WHERE version = ?1
