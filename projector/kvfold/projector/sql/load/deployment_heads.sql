SELECT e.scope, e.namespace, e.key, e.version, e.size
FROM unnest(%(scopes)b::text[], %(namespaces)b::text[], %(keys)b::text[]) AS k (scope, namespace, key)
CROSS JOIN LATERAL (
    SELECT x.scope, x.namespace, x.key, x.version, octet_length(x.value) AS size
    FROM {g}.deployment_entry x WHERE x.scope = k.scope AND x.namespace = k.namespace AND x.key = k.key OFFSET 0
) AS e
