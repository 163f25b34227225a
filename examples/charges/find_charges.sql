SELECT id, amount, currency, client_reference, created_at
  FROM charges
 WHERE principal = $1 AND ($2 IS NULL OR client_reference = $2)
 ORDER BY created_at DESC, id DESC
 LIMIT 100
