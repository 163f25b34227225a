-- The time. The key only chooses the server, so that it is always the same one's.

return now
