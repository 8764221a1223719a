SELECT p.serving, o.offset_next,
    i.name, i.mode, i.status, i.incarnation, i.execution_id, i.worker, i.history_length, i.input, i.output, i.failure,
    i.custom_status, i.created_ms, i.updated_ms, k.key, k.value, k.execution_id
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.orchestration_instance i ON i.scope = $2
LEFT JOIN {g}.orchestration_kv k ON k.scope = i.scope
ORDER BY k.key
