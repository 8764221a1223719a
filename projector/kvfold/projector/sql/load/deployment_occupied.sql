-- Which deployments hold anything at all, tombstones included.
SELECT k.scope FROM unnest(%(scopes)b::text[]) AS k (scope)
CROSS JOIN LATERAL (SELECT x.scope FROM {g}.deployment_entry x WHERE x.scope = k.scope LIMIT 1) AS e
