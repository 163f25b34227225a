-- Completes a record whose attempt ran and lapsed: 1 when there was one.

local nobody, status, answer = ARGV[2], tonumber(ARGV[3]), ARGV[4]

local record = read()
if not record or not record.in_progress or has_live_lease(record) or record.speculative then
  return 0
end
write_completed(record, nobody, status, answer)
return 1
