-- A page of instances, each with its ended executions that are not among the last $4 and ended before $5.
SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    i.scope, e.execution_ids
FROM kvfold.pointer p
LEFT JOIN LATERAL (
    SELECT scope, execution_id FROM {g}.orchestration_instance WHERE scope >= $1 AND scope < $2 ORDER BY scope LIMIT $3
) i ON true
LEFT JOIN LATERAL (
    SELECT array_agg(x.execution_id) AS execution_ids
    FROM (
        SELECT execution_id FROM {g}.orchestration_execution
        WHERE scope = i.scope AND execution_id <= i.execution_id - $4::bigint AND ended_ms < $5
        ORDER BY execution_id LIMIT $6
    ) x
) e ON true
ORDER BY i.scope
