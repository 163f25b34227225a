UPDATE charges
   SET refunded = refunded + $3
 WHERE principal = $1 AND id = $2 AND $3 <= amount - refunded
