-- Makes the lease of the token run from now: until when, or nil.

local token, lease, confirmed = ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

local record = read()
if not record or record.token ~= token or not record.in_progress or is_expired(record) then
  return nil
end
local lease_until = after(lease)
redis.call('HSET', key, 'lease_until', text(lease_until))
if confirmed then
  redis.call('HSET', key, 'speculative', '0')
end
if redis.call('PTTL', key) >= 0 then
  redis.call('PEXPIRE', key, keep_until(math.max(record.expires_at, lease_until)))
end
return lease_until
