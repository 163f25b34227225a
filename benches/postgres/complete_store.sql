UPDATE axum_idempotency_bench.idempotency_keys
SET status_code = 201,
    headers     = '\x00',
    body        = convert_to(repeat('x', 512), 'UTF8'),
    resource_id = 'ch_1a2b3c4d',
    lease_until = NULL,
    completed_at = now()
WHERE status_code IS NULL AND lease_until < now()
