-- A prefix is the range from $3 up to, not including, $4: bytes are compared, so `_` and `%` are themselves.
SELECT p.serving, o.offset_next, e.key
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN LATERAL (
    SELECT key FROM {g}.capsule_entry WHERE scope = $2 AND key >= $3 AND key < $4 ORDER BY key LIMIT $5
) e ON true
ORDER BY e.key
