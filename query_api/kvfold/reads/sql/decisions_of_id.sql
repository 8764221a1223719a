-- An id may have been used in several scopes; each partition's index is probed for it.
SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    d.partition, d.record_offset, d.scope, d.mutation_id, d.type, d.status, d.code, d.version, d.removed, d.detail, d.time_ms
FROM kvfold.pointer p
LEFT JOIN (
    {g}.partition_offset q
    CROSS JOIN LATERAL (
        SELECT x.record_offset FROM {g}.mutation_id x WHERE x.partition = q.partition AND x.id = $1 OFFSET 0
    ) AS m
    CROSS JOIN LATERAL (
        SELECT * FROM {g}.decision x
        WHERE x.partition = q.partition AND x.record_offset = m.record_offset OFFSET 0
    ) AS d
) ON true
ORDER BY d.scope
LIMIT $2
