-- The record without its answer, as an operator sees it: the time, how far it
-- has come, and what belongs to that. Nil when there is none.

local record = read()
if not record then
  return nil
end
if record.in_progress then
  return { now, 'in_progress', record.attempt, record.created_at, record.expires_at,
    record.lease_until, record.speculative and 1 or 0 }
end
local id, kept = outline(record)
return { now, 'completed', record.attempt, record.created_at, record.expires_at,
  record.completed_at, record.status, id, kept or -1 }
