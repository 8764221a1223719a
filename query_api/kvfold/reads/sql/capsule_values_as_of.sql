-- The values of several keys as of offset $4, for a snapshot. OFFSET 0 keeps each look-up one by primary key.
SELECT p.serving, o.offset_next, o.capsule_from, e.key, e.value
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN (
    unnest($3::text[]) AS k (key)
    CROSS JOIN LATERAL (
        SELECT x.key, x.value FROM {g}.capsule_entry x
        WHERE x.scope = $2 AND x.key = k.key AND x.valid_from <= $4
        UNION ALL
        SELECT h.key, h.value FROM (
            SELECT x.key, x.value, x.valid_to FROM {g}.capsule_entry_history x
            WHERE x.scope = $2 AND x.key = k.key AND x.valid_from <= $4 ORDER BY x.valid_from DESC LIMIT 1
        ) h WHERE h.valid_to > $4
        OFFSET 0
    ) e
) ON true
