SELECT CAST(coalesce(sum(count), 0) AS BIGINT) FROM executions
