SELECT scoped_key, attempt, created_at, expires_at, lease_until, speculative, status_code,
       resource_id,
       CASE WHEN completed_at >= created_at THEN completed_at END AS completed_at,
       CASE WHEN headers IS NOT NULL OR body IS NOT NULL
            THEN coalesce(octet_length(headers), 0)::bigint + coalesce(octet_length(body), 0)
            END AS kept_bytes
FROM idempotency_keys
WHERE scoped_key = $1
