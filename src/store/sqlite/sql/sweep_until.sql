-- The last row of the next batch: the oldest ?2 rows that are expired at ?1,
-- or fewer, so that their bodies come to about ?3 bytes.
SELECT expires_at, row
FROM (
    SELECT expires_at, row,
           sum(size) OVER (ORDER BY expires_at, row ROWS UNBOUNDED PRECEDING) - size AS before
    FROM (
        SELECT expires_at, rowid AS row, coalesce(length(body), 0) AS size
        FROM idempotency_keys INDEXED BY idempotency_keys_expires_at
        WHERE expires_at <= ?1 AND (lease_until IS NULL OR lease_until <= ?1)
        ORDER BY expires_at, rowid
        LIMIT ?2
    )
)
WHERE before < ?3
ORDER BY expires_at DESC, row DESC
LIMIT 1
