SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    n.id, n.state, n.schema_version, n.created_at, kvfold.offsets(n.id), r.compared_with, r.to_position,
    (SELECT json_object_agg(t.partition, t.target) FROM kvfold.rebuild_partition t WHERE t.generation = n.id),
    (SELECT json_object_agg(t.partition, t.compared_next) FROM kvfold.rebuild_partition t WHERE t.generation = n.id),
    v.position, v.finished_at, v.row_count, v.difference_count, v.unsettled_scopes
FROM kvfold.pointer p
LEFT JOIN kvfold.generation n ON true
LEFT JOIN kvfold.rebuild r ON r.generation = n.id
LEFT JOIN kvfold.verification v ON v.generation = n.id
ORDER BY n.id
