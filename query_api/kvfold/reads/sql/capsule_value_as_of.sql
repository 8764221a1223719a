-- The value that was true at offset $4: the current one if it was there by then, else the last one that began by then.
SELECT p.serving, o.offset_next, o.capsule_from, e.value, e.sha256, e.version
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT value, sha256, version FROM {g}.capsule_entry WHERE scope = $2 AND key = $3 AND valid_from <= $4
    UNION ALL
    SELECT h.value, h.sha256, h.version FROM (
        SELECT value, sha256, version, valid_to FROM {g}.capsule_entry_history
        WHERE scope = $2 AND key = $3 AND valid_from <= $4 ORDER BY valid_from DESC LIMIT 1
    ) h WHERE h.valid_to > $4
) e ON true
