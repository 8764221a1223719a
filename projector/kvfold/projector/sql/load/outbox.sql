SELECT e.* FROM unnest(
    %(scopes)b::text[], %(incarnations)b::int8[], %(executions)b::int8[], %(events)b::int8[], %(kinds)b::text[]
) AS k (scope, incarnation, execution_id, event_id, kind)
CROSS JOIN LATERAL (
    SELECT * FROM {g}.orchestration_outbox x
    WHERE x.scope = k.scope AND x.incarnation = k.incarnation AND x.execution_id = k.execution_id
        AND x.event_id = k.event_id AND x.kind = k.kind OFFSET 0
) AS e
