SELECT count(*), coalesce(sum(octet_length(key) + octet_length(value)), 0)::bigint, coalesce(max(version), 0)
FROM {g}.capsule_entry
WHERE scope = %(scope)s AND key >= %(prefix)s AND (%(end)s::text IS NULL OR key < %(end)s::text)
