-- A key's value, and whether its instance goes on, as of one moment.
SELECT p.serving, o.offset_next, i.status, k.value, k.execution_id
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.orchestration_instance i ON i.scope = $2
LEFT JOIN {g}.orchestration_kv k ON k.scope = i.scope AND k.key = $3
