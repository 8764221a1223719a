SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    n.id, n.state, n.schema_version, n.created_at
FROM kvfold.pointer p
LEFT JOIN kvfold.generation n ON true
ORDER BY n.id
