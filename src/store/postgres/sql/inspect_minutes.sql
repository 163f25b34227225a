-- Minutes since 1970, whatever the time zone of the session.
SELECT floor(extract(epoch FROM created_at) / 60)::bigint AS minute, count(*) AS keys
FROM idempotency_keys
WHERE created_at >= $1 AND created_at < $2
GROUP BY minute
ORDER BY minute
