-- When the outcome was recorded, by the clock of the store. NULL is unknown: so
-- are the rows that a version completed that does not know the column, and a
-- time before created_at is one that such a version left of an earlier window.
-- Claims wait behind whoever waits for the table: rather try again.
SET LOCAL lock_timeout = '200ms';
ALTER TABLE idempotency_keys ADD COLUMN completed_at timestamptz;
