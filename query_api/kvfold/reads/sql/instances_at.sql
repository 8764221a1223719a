-- Several instances ($1), each as of an offset of its partition ($2); and the horizon of every partition in $3, in rows of
-- their own: the first columns are theirs.
SELECT p.serving, (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    u.partition, u.horizon,
    u.scope, u.name, u.mode, u.status, u.execution_id, u.worker, u.history_length, u.created_ms, u.updated_ms
FROM kvfold.pointer p
LEFT JOIN (
    SELECT NULL::int AS partition, NULL::bigint AS horizon, i.*
    FROM unnest($1::text[], $2::bigint[]) AS k (scope, as_of)
    CROSS JOIN LATERAL (
        SELECT x.scope, x.name, x.mode, x.status, x.execution_id, x.worker, x.history_length, x.created_ms, x.updated_ms
        FROM {g}.orchestration_instance x WHERE x.scope = k.scope AND x.updated_at <= k.as_of
        UNION ALL
        SELECT h.scope, h.name, h.mode, h.status, h.execution_id, h.worker, h.history_length, h.created_ms, h.updated_ms
        FROM (
            SELECT * FROM {g}.orchestration_instance_history x
            WHERE x.scope = k.scope AND x.updated_at <= k.as_of ORDER BY x.updated_at DESC LIMIT 1
        ) h WHERE h.valid_to > k.as_of
        OFFSET 0
    ) i
    UNION ALL
    SELECT o.partition, o.orchestration_from, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM {g}.partition_offset o WHERE o.partition = ANY ($3::int[])
) u ON true
ORDER BY u.scope
