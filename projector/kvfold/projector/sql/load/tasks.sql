SELECT e.* FROM unnest(%(scopes)b::text[], %(executions)b::int8[], %(events)b::int8[]) AS k (scope, execution_id, event_id)
CROSS JOIN LATERAL (
    SELECT * FROM {g}.orchestration_task x
    WHERE x.scope = k.scope AND x.execution_id = k.execution_id AND x.event_id = k.event_id OFFSET 0
) AS e
