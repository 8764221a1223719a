-- Decisions about a scope below offset $3, newest first; with a key ($5), those that named it, and those about a range that
-- held it; with a namespace ($4) those of it. $6 decisions are looked at: a page may be short. What is below the family's
-- horizon ($7: its letter) is not shown.
WITH visited AS MATERIALIZED (
    SELECT d.record_offset, d.mutation_id, d.type, d.namespace, d.subject, d.actor, d.status, d.code, d.version, d.removed,
        d.detail, d.repeat_of, d.keys, d.time_ms
    FROM {g}.decision d
    WHERE d.partition = $1 AND d.scope = $2 AND d.record_offset < $3
        AND d.record_offset >= (
            SELECT CASE $7::text WHEN 'o' THEN x.orchestration_from WHEN 'c' THEN x.capsule_from ELSE x.deployment_from END
            FROM {g}.partition_offset x WHERE x.partition = $1
        )
    ORDER BY d.record_offset DESC LIMIT $6
)
SELECT p.serving, o.offset_next,
    CASE $7::text WHEN 'o' THEN o.orchestration_from WHEN 'c' THEN o.capsule_from ELSE o.deployment_from END,
    (SELECT count(*) FROM visited), (SELECT min(x.record_offset) FROM visited x),
    v.record_offset, v.mutation_id, v.type, v.namespace, v.subject, v.actor, v.status, v.code, v.version, v.removed,
    v.detail, v.repeat_of, v.keys, v.time_ms
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN visited v ON
    ($4::text IS NULL OR v.namespace = $4 OR v.type = 'kvfold.deployment.undeployed.v1')
    AND (
        $5::text IS NULL
        OR CASE v.type
            WHEN 'kvfold.capsule.prefix-cleared.v1' THEN starts_with($5, coalesce(v.subject, ''))
            WHEN 'kvfold.capsule.namespace-cleared.v1' THEN true
            WHEN 'kvfold.deployment.undeployed.v1' THEN true
            WHEN 'kvfold.orchestration.instance-deleted.v1' THEN true
            ELSE v.subject = $5 OR v.keys::jsonb ? $5
        END
    )
ORDER BY v.record_offset DESC
