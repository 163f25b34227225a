-- Whoever comes after us waits behind us for as long as we wait. Bounds are read
-- back as they are written, in no time zone of the session.
SET LOCAL lock_timeout = '40ms';
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO'
