-- Forgets mutation ids that are out of the dedupe window, oldest first, some thousand at a time. Nothing depends on when
-- it runs: the fold tests an id's age itself. Decisions stand in the order of effective time, so the horizon is an offset.
WITH old AS MATERIALIZED (
    SELECT d.record_offset, d.scope, d.mutation_id
    FROM {g}.partition_offset o
    CROSS JOIN LATERAL (
        SELECT x.record_offset, x.scope, x.mutation_id FROM {g}.decision x
        WHERE x.partition = o.partition AND x.record_offset >= o.ids_from AND x.time_ms < o.time_ms - %(window_ms)s
        ORDER BY x.record_offset LIMIT %(rows_max)s
    ) AS d
    WHERE o.partition = %(partition)s
), gone AS (
    DELETE FROM {g}.mutation_id m USING old
    WHERE m.partition = %(partition)s AND m.id = old.mutation_id AND m.scope = old.scope
      AND m.record_offset = old.record_offset
)
UPDATE {g}.partition_offset SET ids_from = (SELECT max(record_offset) + 1 FROM old)
WHERE partition = %(partition)s AND EXISTS (SELECT FROM old)
