SELECT CAST(coalesce(sum(count), 0) AS BIGINT) FROM executions WHERE principal = $1 AND key = $2
