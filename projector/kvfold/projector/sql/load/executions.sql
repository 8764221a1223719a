SELECT e.* FROM unnest(%(scopes)b::text[]) AS k (scope)
CROSS JOIN LATERAL (SELECT execution_id FROM {g}.orchestration_instance x WHERE x.scope = k.scope OFFSET 0) AS i
CROSS JOIN LATERAL (
    SELECT * FROM {g}.orchestration_execution x WHERE x.scope = k.scope AND x.execution_id = i.execution_id OFFSET 0
) AS e
