SELECT e.* FROM unnest(%(scopes)b::text[]) AS k (scope)
CROSS JOIN LATERAL (SELECT scope, keys, bytes, bytes_max, restoring FROM {g}.capsule_scope x WHERE x.scope = k.scope OFFSET 0) AS e
