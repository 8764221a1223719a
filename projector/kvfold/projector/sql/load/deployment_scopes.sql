SELECT e.* FROM unnest(%(scopes)b::text[]) AS k (scope)
CROSS JOIN LATERAL (SELECT scope, version_floor, restoring FROM {g}.deployment_scope x WHERE x.scope = k.scope OFFSET 0) AS e
