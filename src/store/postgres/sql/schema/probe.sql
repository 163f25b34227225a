-- Whether the database may only be read, which rights this role lacks, and
-- whether a commit waits for the disk.
SELECT current_setting('transaction_read_only')::boolean,
       (SELECT string_agg(wanted || ' on ' || name, ', ')
        FROM unnest($1::text[]) AS name,
             unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
        WHERE NOT has_table_privilege(name, wanted)),
       current_setting('synchronous_commit') <> 'off'
