SELECT p.serving, o.offset_next, s.keys, s.bytes, s.bytes_max
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.capsule_scope s ON s.scope = $2
