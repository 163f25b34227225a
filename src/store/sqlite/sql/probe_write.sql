-- Deletes nothing, and is refused where nothing may be written.
DELETE FROM idempotency_ttls WHERE process = x''
