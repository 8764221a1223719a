-- Runnable instances that nobody has leased, and all that their next turn needs. Parameters: names, limit, worker,
-- seconds.
WITH taken AS (
    INSERT INTO kvfold.lease AS l (name, worker, expires_at)
    SELECT q.scope, %(worker)s, clock_timestamp() + make_interval(secs => %(seconds)s)
    FROM {g}.orchestration_queue q
    CROSS JOIN LATERAL (SELECT name FROM {g}.orchestration_instance x WHERE x.scope = q.scope OFFSET 0) AS i
    WHERE q.runnable AND i.name = ANY (%(names)s::text[]) AND NOT EXISTS (
        SELECT FROM kvfold.lease held WHERE held.name = q.scope AND held.expires_at > clock_timestamp()
    )
    ORDER BY q.message_last, q.scope LIMIT %(limit)s
    ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, expires_at = excluded.expires_at
    WHERE l.expires_at <= clock_timestamp()
    RETURNING name
)
SELECT i.scope, i.incarnation, i.execution_id, i.history_length, i.name, e.input, e.kv_seed, e.started_ms, q.children,
    q.message_last, (
        SELECT json_agg(json_build_array(m.record_offset, m.kind, m.data, m.time_ms) ORDER BY m.record_offset)
        FROM (
            SELECT * FROM {g}.orchestration_inbox x WHERE x.scope = i.scope ORDER BY x.record_offset LIMIT 10000
        ) AS m
    )
FROM taken
CROSS JOIN LATERAL (SELECT * FROM {g}.orchestration_instance x WHERE x.scope = taken.name OFFSET 0) AS i
CROSS JOIN LATERAL (SELECT * FROM {g}.orchestration_queue x WHERE x.scope = taken.name OFFSET 0) AS q
CROSS JOIN LATERAL (
    SELECT * FROM {g}.orchestration_execution x
    WHERE x.scope = taken.name AND x.execution_id = i.execution_id OFFSET 0
) AS e
ORDER BY q.message_last, i.scope
