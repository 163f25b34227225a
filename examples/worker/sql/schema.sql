-- Processes that start together do not make the tables together.
BEGIN;
SELECT pg_advisory_xact_lock(hashtext('axum-idempotency worker example'));
CREATE TABLE IF NOT EXISTS payout_queue (
    delivery   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id text NOT NULL,
    amount     bigint NOT NULL,
    visible_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS payout_queue_visible_at ON payout_queue (visible_at);
CREATE TABLE IF NOT EXISTS payouts_made (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id text NOT NULL,
    amount     bigint NOT NULL
);
COMMIT;
