-- A page of an execution's events: of the current execution unless $3 names one. At most $5 events after event $4, and
-- no more once they hold $6 bytes.
SELECT p.serving, o.offset_next, e.execution_id, h.event_id, h.kind, h.data, h.record_offset, h.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN {g}.orchestration_instance i ON i.scope = $2
LEFT JOIN {g}.orchestration_execution e
    ON e.scope = i.scope AND e.execution_id = coalesce($3::bigint, i.execution_id)
LEFT JOIN LATERAL (
    SELECT *, sum(octet_length(data)) OVER (ORDER BY event_id) - octet_length(data) AS bytes_before
    FROM (
        SELECT * FROM {g}.orchestration_event x
        WHERE x.scope = e.scope AND x.execution_id = e.execution_id AND x.event_id > $4::bigint
        ORDER BY x.event_id LIMIT $5
    ) found
) h ON h.bytes_before < $6::bigint
ORDER BY h.event_id
