SELECT log_id::text, name, partition_count FROM kvfold_log.log
