SELECT e.* FROM unnest(%(scopes)b::text[]) AS k (scope)
CROSS JOIN LATERAL (SELECT * FROM {g}.orchestration_queue x WHERE x.scope = k.scope OFFSET 0) AS e
