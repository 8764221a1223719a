-- What the records of a partition ($1) changed after an offset ($2), in order, one row a key or range. At most $3 applied
-- records, not beyond offset $4, and no further record once $5 keys are there. Values of more than $6 bytes stay behind.
-- `records` counts what the limits alone left. OFFSET 0 keeps each look-up one by primary key.
SELECT p.serving, o.offset_next, o.decisions_from, o.capsule_from, o.deployment_from, o.orchestration_from, d.records, d.record_offset, d.scope, d.type, d.namespace, d.subject, d.key,
    d.actor, d.version, d.removed, d.time_ms, v.is_current, v.version, v.execution_id, v.size, v.value
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT r.*, coalesce(r.subject, k.key) AS key, k.ordinality
    FROM (
        SELECT x.*, count(*) OVER () AS records,
            sum(x.key_count) OVER (ORDER BY x.record_offset) - x.key_count AS keys_before
        FROM (
            SELECT x.record_offset, x.scope, x.type, x.namespace, x.subject, x.keys, x.actor, x.version, x.removed, x.time_ms,
                CASE WHEN x.keys IS NULL THEN 1 ELSE json_array_length(x.keys::json) END AS key_count
            FROM {g}.decision x
            WHERE x.partition = $1 AND x.record_offset > $2 AND x.record_offset <= least($4, o.offset_next - 1)
                AND x.status = 'applied' AND x.repeat_of IS NULL /*of_scope*/
            ORDER BY x.record_offset
            LIMIT $3
        ) x
    ) r
    LEFT JOIN LATERAL json_array_elements_text(r.keys::json) WITH ORDINALITY AS k (key, ordinality) ON true
    WHERE r.keys_before < $5
) d ON true
LEFT JOIN LATERAL (
    (SELECT true AS is_current, e.version, NULL::bigint AS execution_id, octet_length(e.value) AS size,
        CASE WHEN octet_length(e.value) <= $6 THEN e.value END AS value
    FROM {g}.capsule_entry e
    WHERE d.scope LIKE 'c:%' AND e.scope = d.scope AND e.key = d.key AND e.valid_from = d.record_offset OFFSET 0)
    UNION ALL
    (SELECT true, e.version, NULL, octet_length(e.value), CASE WHEN octet_length(e.value) <= $6 THEN e.value END
    FROM {g}.capsule_entry_history e
    WHERE d.scope LIKE 'c:%' AND e.scope = d.scope AND e.key = d.key AND e.valid_from = d.record_offset OFFSET 0)
    UNION ALL
    -- What one record of many keys removed: only the version is asked for.
    (SELECT false, e.version, NULL, NULL, NULL
    FROM {g}.capsule_entry_history e
    WHERE d.scope LIKE 'c:%' AND d.subject IS NULL AND e.scope = d.scope AND e.key = d.key AND e.valid_from < d.record_offset
    ORDER BY e.valid_from DESC LIMIT 1)
    UNION ALL
    (SELECT true, e.version, NULL, octet_length(e.value), CASE WHEN octet_length(e.value) <= $6 THEN e.value END
    FROM {g}.deployment_entry e
    WHERE d.scope LIKE 'd:%' AND e.scope = d.scope AND e.namespace = d.namespace AND e.key = d.key
        AND e.valid_from = d.record_offset OFFSET 0)
    UNION ALL
    (SELECT true, e.version, NULL, octet_length(e.value), CASE WHEN octet_length(e.value) <= $6 THEN e.value END
    FROM {g}.deployment_entry_history e
    WHERE d.scope LIKE 'd:%' AND e.scope = d.scope AND e.namespace = d.namespace AND e.key = d.key
        AND e.valid_from = d.record_offset OFFSET 0)
    UNION ALL
    (SELECT true, NULL, e.execution_id, octet_length(e.value),
        CASE WHEN octet_length(e.value) <= $6 THEN convert_to(e.value, 'UTF8') END
    FROM {g}.orchestration_kv e
    WHERE d.scope LIKE 'o:%' AND e.scope = d.scope AND e.key = d.key AND e.valid_from = d.record_offset OFFSET 0)
    UNION ALL
    (SELECT true, NULL, e.execution_id, octet_length(e.value),
        CASE WHEN octet_length(e.value) <= $6 THEN convert_to(e.value, 'UTF8') END
    FROM {g}.orchestration_kv_history e
    WHERE d.scope LIKE 'o:%' AND e.scope = d.scope AND e.key = d.key AND e.valid_from = d.record_offset OFFSET 0)
    ORDER BY 1 DESC
    LIMIT 1
) v ON true
ORDER BY d.record_offset, d.ordinality
