-- The TTLs in force, by the rule of publish_ttl.lua: the smallest and the
-- largest, or nil.

local notices = redis.call('HGETALL', key)
local parsed, horizon = {}, 0
for place = 2, #notices, 2 do
  local least, most, at = notices[place]:match('^(%d+) (%d+) (%d+)$')
  table.insert(parsed, { least = tonumber(least), most = tonumber(most), at = tonumber(at) })
  horizon = math.max(horizon, tonumber(most))
end
local smallest, largest
for _, notice in ipairs(parsed) do
  if now - notice.at <= horizon then
    smallest = math.min(smallest or notice.least, notice.least)
    largest = math.max(largest or notice.most, notice.most)
  end
end
return smallest and { smallest, largest }
