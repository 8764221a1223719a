-- Messages that are not delivered, of each sender in order; the senders are leased from now on.
-- Parameters: limit, worker, seconds.
WITH waiting AS MATERIALIZED (
    SELECT o.*, concat_ws(E'\n', 'm', o.scope) AS lease FROM {g}.orchestration_outbox o
    WHERE NOT EXISTS (
        SELECT FROM kvfold.lease held
        WHERE held.name = concat_ws(E'\n', 'm', o.scope) AND held.expires_at > clock_timestamp()
    )
    ORDER BY o.scope, o.record_offset, o.event_id LIMIT %(limit)s
), taken AS (
    INSERT INTO kvfold.lease AS l (name, worker, expires_at)
    SELECT DISTINCT lease, %(worker)s, clock_timestamp() + make_interval(secs => %(seconds)s) FROM waiting
    ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, expires_at = excluded.expires_at
    WHERE l.expires_at <= clock_timestamp()
    RETURNING name
)
SELECT w.scope, w.incarnation, w.execution_id, w.event_id, w.kind, w.target, w.data, w.record_offset
FROM waiting w JOIN taken ON taken.name = w.lease ORDER BY w.scope, w.record_offset, w.event_id
