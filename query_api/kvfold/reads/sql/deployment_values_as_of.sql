-- As capsule_values_as_of.sql, of the namespace $3.
SELECT p.serving, o.offset_next, o.deployment_from, e.key, e.value
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN (
    unnest($4::text[]) AS k (key)
    CROSS JOIN LATERAL (
        SELECT x.key, x.value FROM {g}.deployment_entry x
        WHERE x.scope = $2 AND x.namespace = $3 AND x.key = k.key AND x.valid_from <= $5
        UNION ALL
        SELECT h.key, h.value FROM (
            SELECT x.key, x.value, x.valid_to FROM {g}.deployment_entry_history x
            WHERE x.scope = $2 AND x.namespace = $3 AND x.key = k.key AND x.valid_from <= $5
            ORDER BY x.valid_from DESC LIMIT 1
        ) h WHERE h.valid_to > $5
        OFFSET 0
    ) e
) ON true
