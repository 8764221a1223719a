-- Attempts that are due, leased from now on. A first attempt is due as soon as it is there, whatever the clocks say.
-- Parameters: names, limit, worker, seconds.
WITH due AS MATERIALIZED (
    SELECT t.*, concat_ws(E'\n', 't', t.scope, t.incarnation, t.execution_id, t.event_id, t.attempt) AS lease
    FROM {g}.orchestration_task t
    WHERE t.kind = 'activity' AND t.name = ANY (%(names)s::text[])
        AND (t.attempt = 1 OR t.due_ms <= extract(epoch FROM clock_timestamp()) * 1000)
        AND NOT EXISTS (
            SELECT FROM kvfold.lease held
            WHERE held.name = concat_ws(E'\n', 't', t.scope, t.incarnation, t.execution_id, t.event_id, t.attempt)
                AND held.expires_at > clock_timestamp()
        )
    ORDER BY t.due_ms, t.scope LIMIT %(limit)s
), taken AS (
    INSERT INTO kvfold.lease AS l (name, worker, expires_at)
    SELECT lease, %(worker)s, clock_timestamp() + make_interval(secs => %(seconds)s) FROM due
    ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, expires_at = excluded.expires_at
    WHERE l.expires_at <= clock_timestamp()
    RETURNING name
)
SELECT d.scope, d.incarnation, d.execution_id, d.event_id, d.kind, d.name, d.data, d.attempt, d.due_ms,
    d.record_offset
FROM due d JOIN taken ON taken.name = d.lease ORDER BY d.due_ms, d.scope
