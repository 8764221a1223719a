-- As capsule_value_as_of.sql; a tombstone gives a null value.
SELECT p.serving, o.offset_next, o.deployment_from, e.value, e.version
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT value, version FROM {g}.deployment_entry
    WHERE scope = $2 AND namespace = $3 AND key = $4 AND valid_from <= $5
    UNION ALL
    SELECT h.value, h.version FROM (
        SELECT value, version, valid_to FROM {g}.deployment_entry_history
        WHERE scope = $2 AND namespace = $3 AND key = $4 AND valid_from <= $5 ORDER BY valid_from DESC LIMIT 1
    ) h WHERE h.valid_to > $5
) e ON true
