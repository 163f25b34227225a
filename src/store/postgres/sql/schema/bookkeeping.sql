-- As sqlx's own migrator has it, under another name.
CREATE TABLE IF NOT EXISTS _axum_idempotency_migrations (
    version        bigint      PRIMARY KEY,
    description    text        NOT NULL,
    installed_on   timestamptz NOT NULL DEFAULT now(),
    success        boolean     NOT NULL,
    checksum       bytea       NOT NULL,
    execution_time bigint      NOT NULL
)
