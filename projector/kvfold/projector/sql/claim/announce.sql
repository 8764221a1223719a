-- Says which format level this process can fold; those that said nothing for the claim time are forgotten.
WITH gone AS (DELETE FROM kvfold.projector WHERE expires_at < clock_timestamp() AND owner <> %(owner)s)
INSERT INTO kvfold.projector (owner, format_level, expires_at)
VALUES (%(owner)s, %(format_level)s, clock_timestamp() + %(claim_ms)s * interval '1 ms')
ON CONFLICT (owner) DO UPDATE SET format_level = excluded.format_level, expires_at = excluded.expires_at
