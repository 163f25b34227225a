-- One process of a database migrates at a time; the number only has to be
-- nobody else's.
SELECT pg_advisory_xact_lock(4981604412078452321)
