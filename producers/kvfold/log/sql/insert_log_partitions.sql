INSERT INTO kvfold_log.log_partition (partition)
SELECT generate_series(0, log.partition_count - 1) FROM kvfold_log.log
ON CONFLICT (partition) DO NOTHING
