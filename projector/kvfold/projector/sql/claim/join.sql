-- Says that a worker is alive; workers that said nothing for the claim time are forgotten.
WITH gone AS (DELETE FROM {g}.worker WHERE expires_at < clock_timestamp() AND owner <> %(owner)s)
INSERT INTO {g}.worker (owner, expires_at, backend_pid)
VALUES (%(owner)s, clock_timestamp() + %(claim_ms)s * interval '1 ms', pg_backend_pid())
ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at, backend_pid = excluded.backend_pid
