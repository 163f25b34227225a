-- Locks the row that its token owns, unless somebody holds it, to the end of the
-- transaction. What that writes nobody sees before, a longer lease neither. $3 is
-- the time of a test's clock.
SELECT true
FROM idempotency_keys
WHERE scoped_key = $1
  AND token = $2
  AND status_code IS NULL
  AND (expires_at > coalesce($3, clock_timestamp())
       OR lease_until > coalesce($3, clock_timestamp()))
FOR NO KEY UPDATE SKIP LOCKED
