SELECT p.serving,
    (SELECT json_object_agg(q.partition, q.offset_next) FROM {g}.partition_offset q),
    o.partition, o.offset_next - 1, o.time_ms, o.committed_at, c.owner, c.expires_at, c.epoch, s.reason, s.detail, s.since,
    pg_notification_queue_usage()
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON true
LEFT JOIN {g}.claim c ON c.partition = o.partition
LEFT JOIN {g}.pause s ON s.partition = o.partition
ORDER BY o.partition
