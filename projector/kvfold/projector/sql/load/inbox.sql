SELECT e.* FROM unnest(%(scopes)b::text[], %(offsets)b::int8[]) AS k (scope, record_offset)
CROSS JOIN LATERAL (SELECT * FROM {g}.orchestration_inbox x WHERE x.scope = k.scope AND x.record_offset = k.record_offset OFFSET 0) AS e
