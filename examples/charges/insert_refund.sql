INSERT INTO refunds (id, principal, charge, amount)
VALUES ($1, $2, $3, $4)
