SELECT p.serving, (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o)
FROM kvfold.pointer p
