-- Sent as one message, this is one transaction. IF NOT EXISTS alone is a race
-- between processes that start together: they queue here.
SELECT pg_advisory_xact_lock(hashtextextended('testbed: schema', 0));

CREATE TABLE IF NOT EXISTS executions (
    principal BYTEA NOT NULL,
    key       TEXT NOT NULL,
    count     BIGINT NOT NULL,
    PRIMARY KEY (principal, key)
);
