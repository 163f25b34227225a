-- Gives the claim of the token back: 1 when it was its own. That an earlier
-- attempt may have had its effect is never forgotten.

local token, nobody = ARGV[2], ARGV[3]

local record = read()
if not record or record.token ~= token or not record.in_progress then
  return 0
end
if record.attempt == 1 then
  redis.call('DEL', key)
else
  redis.call('HSET', key, 'token', nobody, 'lease_until', text(now), 'speculative', '0')
end
return 1
