-- One process migrates a schema ($1) at a time. The first number only has to be
-- nobody else's.
SELECT pg_advisory_xact_lock(1159806051, hashtext(coalesce($1, current_schema(), '')))
