-- Gives everything up, at once.
WITH gone AS (DELETE FROM {g}.worker WHERE owner = %(owner)s)
UPDATE {g}.claim SET owner = NULL, expires_at = NULL, backend_pid = NULL WHERE owner = %(owner)s
