UPDATE plain_keys
SET status_code = 201,
    headers     = '\x00',
    body        = $3,
    resource_id = 'ch_1',
    lease_until = NULL
WHERE scoped_key = $1 AND token = $2
