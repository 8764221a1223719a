-- Forgets decisions that no family's past needs any more, nor the dedupe window: they end below all other horizons.
WITH old AS MATERIALIZED (
    SELECT d.record_offset
    FROM {g}.partition_offset o
    CROSS JOIN LATERAL (
        SELECT x.record_offset FROM {g}.decision x
        WHERE x.partition = o.partition AND x.record_offset >= o.decisions_from
            AND x.record_offset < least(o.ids_from, o.capsule_from, o.deployment_from, o.orchestration_from)
        ORDER BY x.record_offset LIMIT %(rows_max)s
    ) AS d
    WHERE o.partition = %(partition)s
), gone AS (
    DELETE FROM {g}.decision d USING old WHERE d.partition = %(partition)s AND d.record_offset = old.record_offset
)
UPDATE {g}.partition_offset SET decisions_from = (SELECT max(record_offset) + 1 FROM old)
WHERE partition = %(partition)s AND EXISTS (SELECT FROM old)
