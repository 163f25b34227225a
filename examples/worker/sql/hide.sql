UPDATE payout_queue
SET visible_at = clock_timestamp() + make_interval(secs => $2)
WHERE delivery = $1
