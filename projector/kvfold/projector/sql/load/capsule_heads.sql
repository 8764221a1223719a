SELECT e.scope, e.key, e.version, octet_length(e.value), e.sha256
FROM unnest(%(scopes)b::text[], %(keys)b::text[]) AS k (scope, key)
JOIN {g}.capsule_entry e ON e.scope = k.scope AND e.key = k.key
