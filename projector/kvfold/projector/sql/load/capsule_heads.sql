SELECT e.scope, e.key, e.version, e.size, e.sha256
FROM unnest(%(scopes)b::text[], %(keys)b::text[]) AS k (scope, key)
CROSS JOIN LATERAL (
    SELECT x.scope, x.key, x.version, octet_length(x.value) AS size, x.sha256
    FROM {g}.capsule_entry x WHERE x.scope = k.scope AND x.key = k.key OFFSET 0
) AS e
