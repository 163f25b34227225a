SELECT id, amount, currency, client_reference, created_at
  FROM charges
 WHERE principal = $1 AND id = $2
