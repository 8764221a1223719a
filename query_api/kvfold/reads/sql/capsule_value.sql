SELECT p.serving, o.offset_next, e.value, e.sha256, e.version
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.capsule_entry e ON e.scope = $2 AND e.key = $3
