-- As snapshot_capsule.sql, of an instance: all its keys, ten at most, at offset $3.
SELECT p.serving, o.offset_next, o.decisions_from, o.capsule_from, o.deployment_from, o.orchestration_from,
    NULL AS namespace, e.key, NULL::bigint AS version, e.execution_id, e.size, e.value, e.actor, e.valid_from, e.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT x.key, x.execution_id, octet_length(x.value) AS size, convert_to(x.value, 'UTF8') AS value, x.actor, x.valid_from,
        x.time_ms
    FROM {g}.orchestration_kv x
    WHERE x.scope = $2 AND x.valid_from <= $3
    UNION ALL
    SELECT x.key, x.execution_id, octet_length(x.value), convert_to(x.value, 'UTF8'), x.actor, x.valid_from, x.time_ms
    FROM (
        SELECT h.key, h.execution_id, h.value, h.actor, h.valid_from, h.time_ms
        FROM {g}.orchestration_kv_history h WHERE h.scope = $2 AND h.valid_to > $3 OFFSET 0
    ) x
    WHERE x.valid_from <= $3
) e ON true
ORDER BY e.key
