DELETE FROM payout_queue WHERE delivery = $1
