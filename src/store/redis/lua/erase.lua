-- Takes the answer of a completed record away, and leaves all else as it is: 1
-- when there was one.

local record = read()
if not record or record.in_progress then
  return 0
end
local _, kept, rest = outline(record)
if not kept then
  return 0
end
redis.call('SET', key, redis.call('GETRANGE', key, 0, rest - 1), 'KEEPTTL')
return 1
