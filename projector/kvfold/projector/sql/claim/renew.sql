-- What is still ours is ours again for the claim time, also where it had expired and nobody took it.
UPDATE {g}.claim SET expires_at = clock_timestamp() + %(claim_ms)s * interval '1 ms', backend_pid = pg_backend_pid()
WHERE owner = %(owner)s
RETURNING partition, epoch
