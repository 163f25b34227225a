-- Apart from the archive: as a PARTITION OF it, every lookup would wait.
CREATE TABLE {table} (LIKE {archive} INCLUDING ALL)
