-- The whole record, if it is expired.

local record = read()
return record and is_expired(record) and whole(record)
