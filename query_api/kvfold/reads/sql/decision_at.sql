-- For a repeat, the decision that it repeats.
SELECT p.serving, o.offset_next, f.partition, f.record_offset, f.scope, f.mutation_id, f.type, f.status, f.code, f.version,
    f.removed, f.detail, f.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.decision d ON d.partition = $1 AND d.record_offset = $2
LEFT JOIN {g}.decision r ON r.partition = d.partition AND r.record_offset = d.repeat_of
LEFT JOIN {g}.decision f ON f.partition = d.partition AND f.record_offset = coalesce(r.record_offset, d.record_offset)
