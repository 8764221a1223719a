-- Walks from namespace to namespace over entries and their history; of each, looks for one entry that was there at $3.
WITH RECURSIVE walk AS (
    SELECT '' COLLATE "C" AS start, NULL::text COLLATE "C" AS namespace
    UNION ALL
    SELECT n.namespace || E'\x01', n.namespace
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT least(
            (SELECT x.namespace FROM {g}.deployment_entry x
                WHERE x.scope = $2 AND x.namespace >= w.start ORDER BY x.namespace LIMIT 1),
            (SELECT x.namespace FROM {g}.deployment_entry_history x
                WHERE x.scope = $2 AND x.namespace >= w.start ORDER BY x.namespace LIMIT 1)
        ) AS namespace
    ) n
    WHERE n.namespace IS NOT NULL
), live AS (
    SELECT w.namespace FROM walk w
    WHERE EXISTS (
        SELECT FROM {g}.deployment_entry x
        WHERE x.scope = $2 AND x.namespace = w.namespace AND x.valid_from <= $3 AND x.value IS NOT NULL
    ) OR EXISTS (
        SELECT FROM {g}.deployment_entry_history x
        WHERE x.scope = $2 AND x.namespace = w.namespace AND x.valid_from <= $3 AND x.valid_to > $3
            AND x.value IS NOT NULL
    )
)
SELECT p.serving, o.offset_next, o.deployment_from, l.namespace
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN live l ON true
ORDER BY l.namespace
