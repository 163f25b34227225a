INSERT INTO refunds (id, principal, charge, amount, created_at)
SELECT $1, $2, id, $4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  FROM charges
 WHERE principal = $2 AND id = $3
   AND $4 <= amount - (SELECT coalesce(sum(refunds.amount), 0) FROM refunds WHERE charge = $3)
