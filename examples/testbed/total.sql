SELECT coalesce(sum(count), 0) FROM executions
