INSERT INTO charges (id, principal, amount, currency, client_reference, created_at)
VALUES ($1, $2, $3, $4, $5, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
RETURNING id, amount, currency, client_reference, created_at
