INSERT INTO charges (id, principal, amount, currency, client_reference)
VALUES ($1, $2, $3, $4, $5)
RETURNING id, amount, currency, client_reference, created_at
