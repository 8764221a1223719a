SELECT p.serving, o.offset_next
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
