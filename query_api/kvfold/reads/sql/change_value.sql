-- The value that a record ($5) gave a key, current or not: of a capsule, a deployment or an instance.
SELECT p.serving, o.offset_next, v.value
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    (SELECT e.value FROM {g}.capsule_entry e
    WHERE $2 LIKE 'c:%' AND e.scope = $2 AND e.key = $4 AND e.valid_from = $5 OFFSET 0)
    UNION ALL
    (SELECT e.value FROM {g}.capsule_entry_history e
    WHERE $2 LIKE 'c:%' AND e.scope = $2 AND e.key = $4 AND e.valid_from = $5 OFFSET 0)
    UNION ALL
    (SELECT e.value FROM {g}.deployment_entry e
    WHERE $2 LIKE 'd:%' AND e.scope = $2 AND e.namespace = $3 AND e.key = $4 AND e.valid_from = $5 OFFSET 0)
    UNION ALL
    (SELECT e.value FROM {g}.deployment_entry_history e
    WHERE $2 LIKE 'd:%' AND e.scope = $2 AND e.namespace = $3 AND e.key = $4 AND e.valid_from = $5 OFFSET 0)
    UNION ALL
    (SELECT convert_to(e.value, 'UTF8') FROM {g}.orchestration_kv e
    WHERE $2 LIKE 'o:%' AND e.scope = $2 AND e.key = $4 AND e.valid_from = $5 OFFSET 0)
    UNION ALL
    (SELECT convert_to(e.value, 'UTF8') FROM {g}.orchestration_kv_history e
    WHERE $2 LIKE 'o:%' AND e.scope = $2 AND e.key = $4 AND e.valid_from = $5 OFFSET 0)
    LIMIT 1
) v ON true
