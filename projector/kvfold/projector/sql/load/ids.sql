SELECT m.scope, m.id::text, m.record_offset, m.fingerprint, m.time_ms, d.status, d.code, d.version, d.removed, d.detail
FROM unnest(%(scopes)b::text[], %(ids)b::text[]) AS k (scope, id)
JOIN {g}.mutation_id m ON m.partition = %(partition)s AND m.id = k.id::uuid AND m.scope = k.scope
JOIN {g}.decision d ON d.partition = m.partition AND d.record_offset = m.record_offset
