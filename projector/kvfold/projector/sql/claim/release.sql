UPDATE {g}.claim SET owner = NULL, expires_at = NULL, backend_pid = NULL
WHERE owner = %(owner)s AND partition = ANY (%(partitions)s)
