-- One index probe a namespace, not a scan over all keys: each step looks for the first entry past the last namespace.
WITH RECURSIVE names AS (
    (SELECT namespace FROM {g}.deployment_entry WHERE scope = $2 ORDER BY namespace LIMIT 1)
    UNION ALL
    SELECT (
        SELECT e.namespace FROM {g}.deployment_entry e
        WHERE e.scope = $2 AND e.namespace > n.namespace ORDER BY e.namespace LIMIT 1
    ) FROM names n WHERE n.namespace IS NOT NULL
), live AS (
    SELECT n.namespace FROM names n
    WHERE EXISTS (
        SELECT FROM {g}.deployment_entry e
        WHERE e.scope = $2 AND e.namespace = n.namespace AND e.value IS NOT NULL
    )
)
SELECT p.serving, o.offset_next, l.namespace
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN live l ON true
ORDER BY l.namespace
