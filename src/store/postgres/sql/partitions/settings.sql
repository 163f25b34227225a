-- Others wait for a lock for 50 ms: those who stand in line behind us should not
-- find that we are still there. Bounds are read back as they are written, in no
-- time zone of the session.
SET LOCAL lock_timeout = '40ms';
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO'
