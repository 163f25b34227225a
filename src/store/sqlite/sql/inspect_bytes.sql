-- The pages of a table (?1) and its indexes.
SELECT coalesce(sum(pgsize), 0)
FROM dbstat
WHERE aggregate = TRUE
  AND name IN (SELECT name FROM sqlite_schema WHERE tbl_name = ?1 AND rootpage > 0)
