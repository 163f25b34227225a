INSERT INTO idempotency_ttls (process, smallest, largest, published_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (process) DO UPDATE
SET smallest     = excluded.smallest,
    largest      = excluded.largest,
    published_at = excluded.published_at
