-- Everything that the waiters of a process wait for, in one snapshot: each partition's progress and pause, and of the
-- positions asked for ($1, $2) the decisions. For a repeat it is the first decision.
SELECT p.serving, o.partition, o.offset_next, s.reason, s.detail, d.record_offset,
    f.record_offset, f.scope, f.mutation_id, f.type, f.status, f.code, f.version, f.removed, f.detail, f.time_ms
FROM kvfold.pointer p
CROSS JOIN {g}.partition_offset o
LEFT JOIN {g}.pause s ON s.partition = o.partition
LEFT JOIN (
    unnest($1::int[], $2::bigint[]) AS w (partition, record_offset)
    JOIN {g}.decision d ON d.partition = w.partition AND d.record_offset = w.record_offset
    LEFT JOIN {g}.decision r ON r.partition = d.partition AND r.record_offset = d.repeat_of
    JOIN {g}.decision f ON f.partition = d.partition AND f.record_offset = coalesce(r.record_offset, d.record_offset)
) ON d.partition = o.partition
