-- EXTERNAL: values over 2 kB are stored beside the table and not compressed. An append is waited for, so compressing
-- 1 MiB under the partition's row lock would cost every other writer; each value is read back only a few times; secret
-- values and many raw ones do not compress at all. The price is disk.
ALTER TABLE kvfold_log.log_record ALTER COLUMN value SET STORAGE EXTERNAL
