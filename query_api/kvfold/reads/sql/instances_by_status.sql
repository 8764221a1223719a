-- As instances.sql, by the index on (status, scope).
SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    i.scope, i.name, i.mode, i.status, i.execution_id, i.worker, i.history_length, i.created_ms, i.updated_ms
FROM kvfold.pointer p
LEFT JOIN LATERAL (
    SELECT * FROM {g}.orchestration_instance
    WHERE status = $4 AND scope >= $1 AND scope < $2 ORDER BY scope LIMIT $3
) i ON true
ORDER BY i.scope
