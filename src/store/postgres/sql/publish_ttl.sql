-- Publishes what this process uses, forgets what is over, and tells the smallest
-- in force. $4 is the time of a test's clock.
WITH present AS MATERIALIZED (
    SELECT coalesce($4, clock_timestamp()) AS now
), others AS MATERIALIZED (
    SELECT process, smallest, largest, published_at
    FROM idempotency_ttls
    WHERE process <> $1
), horizon AS MATERIALIZED (
    SELECT now - greatest($3::bigint, (SELECT max(largest) FROM others)) * interval '1 microsecond'
        AS since
    FROM present
), published AS (
    INSERT INTO idempotency_ttls (process, smallest, largest, published_at)
    SELECT $1, $2, $3, now FROM present
    ON CONFLICT (process) DO UPDATE
    SET smallest     = excluded.smallest,
        largest      = excluded.largest,
        published_at = excluded.published_at
), forgotten AS (
    DELETE FROM idempotency_ttls
    WHERE process IN (
        SELECT process
        FROM idempotency_ttls t, horizon
        WHERE process <> $1 AND published_at < since
        FOR UPDATE OF t SKIP LOCKED
    )
)
SELECT least($2::bigint, (SELECT min(smallest) FROM others, horizon WHERE published_at >= since))
