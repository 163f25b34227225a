-- Removes the record if it is expired and still the one that was read: 1 when it
-- was.

local token, expires_at, status = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local record = read()
if not record or not is_expired(record) then
  return 0
elseif record.token ~= token or record.expires_at ~= expires_at or record.status ~= status then
  return 0
end
return redis.call('DEL', key)
