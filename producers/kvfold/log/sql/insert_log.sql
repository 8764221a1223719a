INSERT INTO kvfold_log.log (name, partition_count)
VALUES (%(name)s, %(partition_count)s)
ON CONFLICT (only_one) DO NOTHING
