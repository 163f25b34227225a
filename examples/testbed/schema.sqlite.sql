CREATE TABLE IF NOT EXISTS executions (
    principal BLOB NOT NULL,
    key       TEXT NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT;
