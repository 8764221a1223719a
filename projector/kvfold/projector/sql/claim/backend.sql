UPDATE {g}.claim SET backend_pid = %(pid)s WHERE owner = %(owner)s AND partition = ANY (%(partitions)s)
