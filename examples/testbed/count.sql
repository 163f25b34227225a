SELECT coalesce(sum(count), 0) FROM executions WHERE principal = $1 AND key = $2
