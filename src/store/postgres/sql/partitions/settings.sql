-- Nobody waits long for us, nor we for them. Bounds are read back as they are
-- written, in no time zone of the session.
SET LOCAL lock_timeout = '100ms';
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO'
