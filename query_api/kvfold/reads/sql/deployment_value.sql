SELECT p.serving, o.offset_next, e.value, e.version
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.deployment_entry e ON e.scope = $2 AND e.namespace = $3 AND e.key = $4
