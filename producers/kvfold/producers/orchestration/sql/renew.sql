-- Keeps leases that this worker still has. Parameters: names, worker, seconds.
UPDATE kvfold.lease SET expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE name = ANY (%(names)s::text[]) AND worker = %(worker)s
