-- Entries of a capsule as they were at offset $5, keys from $3 up to, not including, $4; for a watcher's snapshot. What was
-- replaced since is found by its end (OFFSET 0 sees to that). Values of more than $7 bytes stay behind.
SELECT p.serving, o.offset_next, o.decisions_from, o.capsule_from, o.deployment_from, o.orchestration_from,
    NULL AS namespace, e.key, e.version, NULL::bigint AS execution_id, e.size, e.value, e.actor, e.valid_from, e.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    (SELECT x.key, x.version, octet_length(x.value) AS size, CASE WHEN octet_length(x.value) <= $7 THEN x.value END AS value,
        x.actor, x.valid_from, x.time_ms
    FROM {g}.capsule_entry x
    WHERE x.scope = $2 AND x.key >= $3 AND x.key < $4 AND x.valid_from <= $5
    ORDER BY x.key LIMIT $6)
    UNION ALL
    (SELECT x.key, x.version, octet_length(x.value), CASE WHEN octet_length(x.value) <= $7 THEN x.value END,
        x.actor, x.valid_from, x.time_ms
    FROM (
        SELECT h.key, h.version, h.value, h.actor, h.valid_from, h.time_ms
        FROM {g}.capsule_entry_history h WHERE h.scope = $2 AND h.valid_to > $5 OFFSET 0
    ) x
    WHERE x.valid_from <= $5 AND x.key >= $3 AND x.key < $4
    ORDER BY x.key LIMIT $6)
    ORDER BY 1 LIMIT $6
) e ON true
ORDER BY e.key
