ALTER TABLE idempotency_keys DROP COLUMN completed_at;
