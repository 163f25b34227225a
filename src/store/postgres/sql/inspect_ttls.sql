-- Those in force, by the rule of publish_ttl.sql. $1 is the time of a test's
-- clock.
SELECT min(smallest) AS smallest, max(largest) AS largest
FROM idempotency_ttls
WHERE published_at >= coalesce($1, clock_timestamp())
    - (SELECT max(largest) FROM idempotency_ttls) * interval '1 microsecond'
