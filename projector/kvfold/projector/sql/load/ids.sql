-- OFFSET 0 keeps each lookup a lookup: without it a plan made while the tables are empty, and kept, scans them whole.
SELECT m.scope, m.id::text, m.record_offset, m.fingerprint, m.time_ms, d.status, d.code, d.version, d.removed, d.detail
FROM unnest(%(scopes)b::text[], %(ids)b::text[]) AS k (scope, id)
CROSS JOIN LATERAL (
    SELECT * FROM {g}.mutation_id x
    WHERE x.partition = %(partition)s AND x.id = k.id::uuid AND x.scope = k.scope OFFSET 0
) AS m
CROSS JOIN LATERAL (
    SELECT * FROM {g}.decision x
    WHERE x.partition = %(partition)s AND x.record_offset = m.record_offset OFFSET 0
) AS d
