-- Ends an earlier owner's fold sessions, which may hold the offset row.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %(session)s AND datname = current_database()
