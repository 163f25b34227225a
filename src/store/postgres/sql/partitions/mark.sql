-- What is detached is to be dropped; what somebody else detached is not.
COMMENT ON TABLE {table} IS '{mark}'
