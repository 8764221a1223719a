-- Everything that the waiters of a process wait for, in one snapshot: each partition's progress and pause, and of the
-- positions asked for ($1, $2) the decisions. For a repeat it is the first decision, while that is kept.
-- OFFSET 0 keeps each look-up a look-up by primary key, in a plan that was made while the table was empty, too.
SELECT p.serving, o.partition, o.offset_next, s.reason, s.detail, w.record_offset,
    f.record_offset, f.scope, f.mutation_id, f.type, f.status, f.code, f.version, f.removed, f.detail, f.time_ms
FROM kvfold.pointer p
CROSS JOIN {g}.partition_offset o
LEFT JOIN {g}.pause s ON s.partition = o.partition
LEFT JOIN (
    unnest($1::int[], $2::bigint[]) AS w (partition, record_offset)
    CROSS JOIN LATERAL (
        SELECT x.repeat_of FROM {g}.decision x
        WHERE x.partition = w.partition AND x.record_offset = w.record_offset OFFSET 0
    ) AS d
    LEFT JOIN LATERAL (
        SELECT x.record_offset FROM {g}.decision x
        WHERE x.partition = w.partition AND x.record_offset = d.repeat_of OFFSET 0
    ) AS r ON true
    CROSS JOIN LATERAL (
        SELECT * FROM {g}.decision x
        WHERE x.partition = w.partition AND x.record_offset = coalesce(r.record_offset, w.record_offset) OFFSET 0
    ) AS f
) ON w.partition = o.partition
