CREATE TABLE IF NOT EXISTS events (
    provider text NOT NULL,
    event_id text,
    kind     text NOT NULL
);
