ALTER TABLE {archive} ATTACH PARTITION {table} FOR VALUES FROM ('{begins}') TO ('{ends}')
