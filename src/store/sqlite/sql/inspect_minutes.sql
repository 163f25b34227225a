-- Times are microseconds, so that a minute is 60,000,000.
SELECT created_at - created_at % 60000000 AS minute, count(*) AS keys
FROM idempotency_keys
WHERE created_at >= ?1 AND created_at < ?2
GROUP BY minute
ORDER BY minute
