-- Publishes the TTLs of a process, forgets those whose records have all expired,
-- and replies with the smallest in force. The key holds them all: a field for
-- each process, its smallest, its largest, and when it published them.

local process, smallest, largest = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

redis.call('HSET', key, process, text(smallest) .. ' ' .. text(largest) .. ' ' .. text(now))
local notices = redis.call('HGETALL', key)
local parsed = {}
for place = 1, #notices, 2 do
  local least, most, at = notices[place + 1]:match('^(%d+) (%d+) (%d+)$')
  parsed[notices[place]] = { least = tonumber(least), most = tonumber(most), at = tonumber(at) }
  largest = math.max(largest, tonumber(most))
end
for name, notice in pairs(parsed) do
  if now - notice.at > largest then
    redis.call('HDEL', key, name)
  else
    smallest = math.min(smallest, notice.least)
  end
end
return smallest
