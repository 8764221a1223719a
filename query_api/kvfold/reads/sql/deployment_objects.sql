-- Tombstones (null values) are not listed. The size does not fetch the value.
SELECT p.serving, o.offset_next, e.key, e.version, e.size, e.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT key, version, octet_length(value) AS size, time_ms
    FROM {g}.deployment_entry
    WHERE scope = $2 AND namespace = $3 AND key >= $4 AND key < $5 AND value IS NOT NULL
    ORDER BY key LIMIT $6
) e ON true
ORDER BY e.key
