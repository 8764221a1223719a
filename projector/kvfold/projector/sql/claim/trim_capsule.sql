-- Forgets what records replaced that are older than the family's retention, oldest first, some thousand records at a time,
-- and moves the family's horizon in the same statement. No decision depends on it.
WITH old AS MATERIALIZED (
    SELECT d.record_offset, d.scope, d.status = 'applied' AS is_applied
    FROM {g}.partition_offset o
    JOIN kvfold.retention r ON r.family = 'capsule'
    CROSS JOIN LATERAL (
        SELECT x.record_offset, x.scope, x.status FROM {g}.decision x
        WHERE x.partition = o.partition AND x.record_offset >= o.capsule_from AND x.time_ms < o.time_ms - r.keep_ms
        ORDER BY x.record_offset LIMIT %(rows_max)s
    ) AS d
    WHERE o.partition = %(partition)s
), gone_0 AS (
    DELETE FROM {g}.capsule_entry_history h USING old WHERE h.scope = old.scope AND h.valid_to = old.record_offset AND old.is_applied
)
UPDATE {g}.partition_offset SET capsule_from = (SELECT max(record_offset) + 1 FROM old)
WHERE partition = %(partition)s AND EXISTS (SELECT FROM old)
