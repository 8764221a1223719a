SELECT p.serving,
    (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
    s.scope, s.keys, s.bytes, s.bytes_max
FROM kvfold.pointer p
LEFT JOIN LATERAL (
    SELECT * FROM {g}.capsule_scope WHERE scope >= $1 AND scope < $2 ORDER BY scope LIMIT $3
) s ON true
ORDER BY s.scope
