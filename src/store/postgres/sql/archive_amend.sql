-- Gives the latest row without an outcome the one that was learned later.
UPDATE idempotency_key_archive
SET status_code = $2,
    resource_id = $3
WHERE scoped_key = $1
  AND status_code = 0
  AND expired_at = (
      SELECT max(expired_at)
      FROM idempotency_key_archive
      WHERE scoped_key = $1 AND status_code = 0
  )
