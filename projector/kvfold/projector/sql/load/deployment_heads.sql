SELECT e.scope, e.namespace, e.key, e.version, octet_length(e.value)
FROM unnest(%(scopes)b::text[], %(namespaces)b::text[], %(keys)b::text[]) AS k (scope, namespace, key)
JOIN {g}.deployment_entry e ON e.scope = k.scope AND e.namespace = k.namespace AND e.key = k.key
