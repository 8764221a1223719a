-- Gives leases back. Parameters: names, worker.
DELETE FROM kvfold.lease WHERE name = ANY (%(names)s::text[]) AND worker = %(worker)s
