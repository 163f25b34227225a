INSERT INTO executions (principal, key, count)
VALUES ($1, $2, 1)
    ON CONFLICT (principal, key) DO UPDATE SET count = executions.count + 1
RETURNING count
