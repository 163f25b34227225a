-- What OpenQuery::judge counts, with $1 as its moment: an outcome that was
-- recorded at an unknown time counts if it was claimed from $2 on.
SELECT scoped_key, attempt, created_at, expires_at, lease_until, speculative, status_code,
       resource_id,
       CASE WHEN completed_at >= created_at THEN completed_at END AS completed_at,
       CASE WHEN headers IS NOT NULL OR body IS NOT NULL
            THEN coalesce(octet_length(headers), 0)::bigint + coalesce(octet_length(body), 0)
            END AS kept_bytes
FROM idempotency_keys
WHERE created_at <= $1
  AND CASE WHEN status_code IS NULL THEN NOT speculative
           WHEN completed_at >= created_at THEN completed_at > $1
           ELSE created_at >= $2 END
ORDER BY created_at, scoped_key
LIMIT $3
