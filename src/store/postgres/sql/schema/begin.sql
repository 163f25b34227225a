-- Who comes second waits for the first.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '1min';
SET LOCAL statement_timeout = '1min'
