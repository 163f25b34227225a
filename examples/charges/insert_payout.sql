INSERT INTO payouts (id, principal, amount, currency, created_at)
VALUES ($1, $2, $3, $4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
