SELECT p.serving, o.offset_next, k.value, k.execution_id
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.orchestration_kv k ON k.scope = $2 AND k.key = $3
