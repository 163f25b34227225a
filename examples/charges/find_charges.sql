SELECT id, amount, currency, client_reference, created_at
  FROM charges
 WHERE principal = $1 AND (CAST($2 AS TEXT) IS NULL OR client_reference = $2)
 ORDER BY created_at DESC, id DESC
 LIMIT 100
