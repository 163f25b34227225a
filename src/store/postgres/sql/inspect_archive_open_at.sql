-- What OpenQuery::judge_archived counts, with $1 as its moment: a row with an
-- outcome counts if it was claimed from $2 on.
SELECT scoped_key, fingerprint, status_code, resource_id, created_at, expired_at
FROM idempotency_key_archive
WHERE expired_at > $1
  AND created_at <= $1
  AND (status_code = 0 OR created_at >= $2)
ORDER BY created_at, scoped_key, expired_at
LIMIT $3
