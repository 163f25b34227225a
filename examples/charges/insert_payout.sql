INSERT INTO payouts (id, principal, amount, currency)
VALUES ($1, $2, $3, $4)
