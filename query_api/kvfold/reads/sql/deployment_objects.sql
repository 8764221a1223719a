-- Tombstones (null values) are not listed. The size does not fetch the value.
SELECT p.serving, o.offset_next, e.key, e.version, e.size, e.time_ms, e.sha256
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT x.key, x.version, octet_length(x.value) AS size, x.time_ms, {x.sha256} AS sha256
    FROM {g}.deployment_entry x
    WHERE x.scope = $2 AND x.namespace = $3 AND x.key >= $4 AND x.key < $5 AND x.value IS NOT NULL
    ORDER BY x.key LIMIT $6
) e ON true
ORDER BY e.key
