-- For the length of a transaction: who asks for all rows reads the table, and is
-- planned for with what is asked.
SELECT set_config('enable_seqscan', 'on', true), set_config('plan_cache_mode', 'auto', true)
