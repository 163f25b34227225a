INSERT INTO payouts_made (message_id, amount)
VALUES ($1, $2)
RETURNING id
