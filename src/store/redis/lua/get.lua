-- The whole record, if there is one.

local record = read()
return record and whole(record)
