-- Why a token's call wrote nothing: its row is completed, it is past its time,
-- or somebody holds it locked. No row: the token owns none. $3 is the time of a
-- test's clock.
SELECT asked.scoped_key, k.*
FROM unnest($1::text[], $2::uuid[]) AS asked (scoped_key, token) CROSS JOIN LATERAL (
    SELECT status_code IS NOT NULL AS is_completed,
           expires_at <= coalesce($3, clock_timestamp())
               AND lease_until <= coalesce($3, clock_timestamp()) AS is_expired
    FROM idempotency_keys
    WHERE scoped_key = asked.scoped_key AND token = asked.token
    LIMIT 1
) k
