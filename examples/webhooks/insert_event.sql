INSERT INTO events (provider, event_id, kind)
VALUES ($1, $2, $3)
