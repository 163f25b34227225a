-- One row of each month and how many there are. Months are those of UTC.
SELECT min(expired_at) AS expired_at, count(*) AS counted
FROM idempotency_key_archive INDEXED BY idempotency_key_archive_expired_at
GROUP BY strftime('%Y-%m', expired_at / 1000000, 'unixepoch')
ORDER BY expired_at
