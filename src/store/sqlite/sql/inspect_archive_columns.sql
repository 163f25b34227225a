SELECT name, type FROM pragma_table_info('idempotency_key_archive') ORDER BY cid
