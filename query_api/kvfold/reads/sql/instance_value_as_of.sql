-- As capsule_value_as_of.sql.
SELECT p.serving, o.offset_next, o.orchestration_from, e.value, e.execution_id
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT value, execution_id FROM {g}.orchestration_kv WHERE scope = $2 AND key = $3 AND valid_from <= $4
    UNION ALL
    SELECT h.value, h.execution_id FROM (
        SELECT value, execution_id, valid_to FROM {g}.orchestration_kv_history
        WHERE scope = $2 AND key = $3 AND valid_from <= $4 ORDER BY valid_from DESC LIMIT 1
    ) h WHERE h.valid_to > $4
) e ON true
