SELECT count(*) FILTER (WHERE value IS NOT NULL),
    coalesce(sum(octet_length(key) + octet_length(value)) FILTER (WHERE value IS NOT NULL), 0)::bigint,
    coalesce(max(version), 0)
FROM {g}.deployment_entry WHERE scope = %(scope)s
