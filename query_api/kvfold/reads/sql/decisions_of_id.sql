-- An id may have been used in several scopes; each partition's index is probed for it.
SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    d.partition, d.record_offset, d.scope, d.mutation_id, d.type, d.status, d.code, d.version, d.removed, d.detail, d.time_ms
FROM kvfold.pointer p
LEFT JOIN (
    {g}.partition_offset q
    JOIN {g}.mutation_id m ON m.partition = q.partition AND m.id = $1
    JOIN {g}.decision d ON d.partition = m.partition AND d.record_offset = m.record_offset
) ON true
ORDER BY d.scope
LIMIT $2
