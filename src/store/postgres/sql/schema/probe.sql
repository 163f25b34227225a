-- Whether the database may only be read, and which rights this role lacks.
SELECT current_setting('transaction_read_only')::boolean,
       (SELECT string_agg(wanted || ' on ' || name, ', ')
        FROM unnest($1::text[]) AS name,
             unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
        WHERE NOT has_table_privilege(name, wanted))
