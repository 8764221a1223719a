SELECT partition_count FROM kvfold.log
