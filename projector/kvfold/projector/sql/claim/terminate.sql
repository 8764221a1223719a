-- Ends an earlier owner's fold connection, but no other process that got its number since.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %(pid)s AND application_name LIKE 'kvfold-fold%%' AND datname = current_database()
