SELECT to_regclass('kvfold_log.log_record') IS NOT NULL AND to_regclass('kvfold_log.log') IS NOT NULL
