-- Moves the oldest expired rows into the archive of this database. Rows that
-- somebody holds locked are left to the next sweep; an outcome that is learned
-- later wins over none; what was only speculative leaves no tombstone. Into the
-- archive they go in the order of their keys, as everybody's do: else a sweeper
-- from another database and this one could wait for each other. $1 is the time
-- of a test's clock.
WITH expired AS MATERIALIZED (
    SELECT ctid AS place, scoped_key, fingerprint, status_code, resource_id, created_at,
           expires_at, speculative
    FROM idempotency_keys
    WHERE expires_at <= (SELECT coalesce($1, clock_timestamp()))
      AND (lease_until IS NULL OR lease_until <= (SELECT coalesce($1, clock_timestamp())))
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), archived AS (
    INSERT INTO idempotency_key_archive AS a
        (scoped_key, fingerprint, status_code, resource_id, created_at, expired_at)
    SELECT scoped_key, fingerprint, coalesce(status_code, 0), resource_id, created_at, expires_at
    FROM expired
    WHERE NOT speculative
    ORDER BY scoped_key
    ON CONFLICT (scoped_key, expired_at) DO UPDATE
    SET status_code = excluded.status_code,
        resource_id = excluded.resource_id
    WHERE a.status_code = 0 AND excluded.status_code <> 0
), gone AS (
    DELETE FROM idempotency_keys
    WHERE ctid = ANY (ARRAY(SELECT place FROM expired))
)
SELECT count(*) FROM expired
