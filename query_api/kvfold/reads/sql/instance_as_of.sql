-- The instance and its keys as they were at offset $3; the walk goes from key to key as in capsule_keys_as_of.sql.
WITH RECURSIVE walk AS (
    SELECT '' COLLATE "C" AS start, NULL::text COLLATE "C" AS key, NULL::text AS value, NULL::bigint AS execution_id,
        NULL::bigint AS valid_from, NULL::bigint AS time_ms
    UNION ALL
    SELECT n.key || E'\x01', n.key, e.value, e.execution_id, e.valid_from, e.time_ms
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT least(
            (SELECT x.key FROM {g}.orchestration_kv x
                WHERE x.scope = $2 AND x.key >= w.start ORDER BY x.key LIMIT 1),
            (SELECT x.key FROM {g}.orchestration_kv_history x
                WHERE x.scope = $2 AND x.key >= w.start ORDER BY x.key LIMIT 1)
        ) AS key
    ) n
    LEFT JOIN LATERAL (
        SELECT x.value, x.execution_id, x.valid_from, x.time_ms FROM {g}.orchestration_kv x
        WHERE x.scope = $2 AND x.key = n.key AND x.valid_from <= $3
        UNION ALL
        SELECT h.value, h.execution_id, h.valid_from, h.time_ms FROM (
            SELECT x.value, x.execution_id, x.valid_from, x.time_ms, x.valid_to FROM {g}.orchestration_kv_history x
            WHERE x.scope = $2 AND x.key = n.key AND x.valid_from <= $3 ORDER BY x.valid_from DESC LIMIT 1
        ) h WHERE h.valid_to > $3
    ) e ON true
    WHERE n.key IS NOT NULL
)
SELECT p.serving, o.offset_next, o.orchestration_from,
    i.name, i.mode, i.status, i.incarnation, i.execution_id, i.worker, i.history_length, i.input, i.output, i.failure,
    i.custom_status, i.created_ms, i.updated_ms, w.key, w.value, w.execution_id, w.valid_from, w.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT x.name, x.mode, x.status, x.incarnation, x.execution_id, x.worker, x.history_length, x.input, x.output,
        x.failure, x.custom_status, x.created_ms, x.updated_ms
    FROM {g}.orchestration_instance x WHERE x.scope = $2 AND x.updated_at <= $3
    UNION ALL
    SELECT h.name, h.mode, h.status, h.incarnation, h.execution_id, h.worker, h.history_length, h.input, h.output,
        h.failure, h.custom_status, h.created_ms, h.updated_ms
    FROM (
        SELECT * FROM {g}.orchestration_instance_history x
        WHERE x.scope = $2 AND x.updated_at <= $3 ORDER BY x.updated_at DESC LIMIT 1
    ) h WHERE h.valid_to > $3
) i ON true
LEFT JOIN walk w ON w.value IS NOT NULL AND i.name IS NOT NULL
ORDER BY w.key
