-- Sent as one message, this is one transaction. IF NOT EXISTS alone is a race
-- between processes that start together: they queue here.
SELECT pg_advisory_xact_lock(hashtextextended('webhooks: schema', 0));

CREATE TABLE IF NOT EXISTS events (
    provider text NOT NULL,
    event_id text,
    kind     text NOT NULL
);
