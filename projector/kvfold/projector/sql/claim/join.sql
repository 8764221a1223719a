-- Says that a worker is alive; workers that said nothing for the claim time are forgotten.
WITH gone AS (DELETE FROM {g}.worker WHERE expires_at < clock_timestamp())
INSERT INTO {g}.worker (owner, expires_at)
VALUES (%(owner)s, clock_timestamp() + %(claim_ms)s * interval '1 ms')
ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
