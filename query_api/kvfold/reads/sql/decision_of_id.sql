-- OFFSET 0 keeps each look-up one by primary key.
SELECT p.serving, o.offset_next, d.partition, d.record_offset, d.scope, d.mutation_id, d.type, d.status, d.code, d.version,
    d.removed, d.detail, d.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.mutation_id m ON m.partition = $1 AND m.id = $2 AND m.scope = $3
LEFT JOIN LATERAL (
    SELECT * FROM {g}.decision x WHERE x.partition = $1 AND x.record_offset = m.record_offset OFFSET 0
) d ON true
