-- Completes the record of the token: 1 when it is, or was already.

local token, status, answer = ARGV[2], tonumber(ARGV[3]), ARGV[4]

local record = read()
if not record or record.token ~= token then
  return 0
elseif not record.in_progress then
  return 1
elseif is_expired(record) then
  return 0
end
write_completed(record, token, status, answer)
return 1
