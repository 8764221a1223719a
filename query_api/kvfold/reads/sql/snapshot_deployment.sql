-- As snapshot_capsule.sql, of a deployment: from ($3, $4) up to, not including, ($5, $6), by namespace and key, at offset $7.
-- A null value is a tombstone.
SELECT p.serving, o.offset_next, o.decisions_from, o.capsule_from, o.deployment_from, o.orchestration_from,
    e.namespace, e.key, e.version, NULL::bigint AS execution_id, e.size, e.value, e.actor, e.valid_from, e.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    (SELECT x.namespace, x.key, x.version, octet_length(x.value) AS size,
        CASE WHEN octet_length(x.value) <= $9 THEN x.value END AS value, x.actor, x.valid_from, x.time_ms
    FROM {g}.deployment_entry x
    WHERE x.scope = $2 AND (x.namespace, x.key) >= ($3, $4) AND (x.namespace, x.key) < ($5, $6) AND x.valid_from <= $7
        AND x.value IS NOT NULL
    ORDER BY x.namespace, x.key LIMIT $8)
    UNION ALL
    (SELECT x.namespace, x.key, x.version, octet_length(x.value),
        CASE WHEN octet_length(x.value) <= $9 THEN x.value END, x.actor, x.valid_from, x.time_ms
    FROM (
        SELECT h.namespace, h.key, h.version, h.value, h.actor, h.valid_from, h.time_ms
        FROM {g}.deployment_entry_history h WHERE h.scope = $2 AND h.valid_to > $7 OFFSET 0
    ) x
    WHERE x.valid_from <= $7
        AND (x.namespace, x.key) >= ($3, $4) AND (x.namespace, x.key) < ($5, $6) AND x.value IS NOT NULL
    ORDER BY x.namespace, x.key LIMIT $8)
    ORDER BY 1, 2 LIMIT $8
) e ON true
ORDER BY e.namespace, e.key
