UPDATE payout_queue
SET visible_at = clock_timestamp() + make_interval(secs => $1)
WHERE delivery = (
    SELECT delivery
    FROM payout_queue
    WHERE visible_at <= clock_timestamp()
    ORDER BY visible_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING delivery, message_id, amount
