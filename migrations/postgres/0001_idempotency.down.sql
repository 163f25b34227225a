DROP TABLE idempotency_ttls;
DROP TABLE idempotency_key_archive;
DROP TABLE idempotency_keys;
