-- Runs every command of the other scripts once, so that one that the user may
-- not run is found out before it is needed.

redis.call('TYPE', key)
redis.call('HSET', key, 'token', '', 'attempt', '1')
redis.call('HMGET', key, 'token', 'attempt')
redis.call('HGETALL', key)
redis.call('HDEL', key, 'token')
redis.call('PERSIST', key)
redis.call('PTTL', key)
redis.call('PEXPIRE', key, GRACE)
redis.call('SET', key, '', 'PX', GRACE)
redis.call('GETRANGE', key, 0, 0)
redis.call('STRLEN', key)
redis.call('SET', key, '', 'KEEPTTL')
redis.call('GET', key)
redis.call('DEL', key)
return now
