-- For a repeat, the decision that it repeats, while that is kept. OFFSET 0 keeps each look-up one by primary key.
SELECT p.serving, o.offset_next, f.partition, f.record_offset, f.scope, f.mutation_id, f.type, f.status, f.code, f.version,
    f.removed, f.detail, f.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT x.repeat_of FROM {g}.decision x WHERE x.partition = $1 AND x.record_offset = $2 OFFSET 0
) d ON true
LEFT JOIN LATERAL (
    SELECT x.record_offset FROM {g}.decision x WHERE x.partition = $1 AND x.record_offset = d.repeat_of OFFSET 0
) r ON true
LEFT JOIN LATERAL (
    SELECT * FROM {g}.decision x WHERE x.partition = $1 AND x.record_offset = coalesce(r.record_offset, $2) OFFSET 0
) f ON true
