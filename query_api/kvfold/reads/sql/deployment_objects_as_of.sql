-- As capsule_keys_as_of.sql, of one namespace; tombstones are no objects.
WITH RECURSIVE walk AS (
    SELECT $4::text COLLATE "C" AS start, NULL::text COLLATE "C" AS key, NULL::bigint AS version, NULL::int AS size,
        NULL::bigint AS time_ms, NULL::bytea AS sha256, NULL::bigint AS valid_from, 0 AS found, 0 AS visited
    UNION ALL
    SELECT n.key || E'\x01', n.key, e.version, e.size, e.time_ms, e.sha256, e.valid_from,
        w.found + (e.version IS NOT NULL)::int, w.visited + 1
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT least(
            (SELECT x.key FROM {g}.deployment_entry x
                WHERE x.scope = $2 AND x.namespace = $3 AND x.key >= w.start AND x.key < $5 ORDER BY x.key LIMIT 1),
            (SELECT x.key FROM {g}.deployment_entry_history x
                WHERE x.scope = $2 AND x.namespace = $3 AND x.key >= w.start AND x.key < $5 ORDER BY x.key LIMIT 1)
        ) AS key
    ) n
    LEFT JOIN LATERAL (
        SELECT x.version, octet_length(x.value) AS size, x.time_ms, {x.sha256} AS sha256, x.valid_from
        FROM {g}.deployment_entry x
        WHERE x.scope = $2 AND x.namespace = $3 AND x.key = n.key AND x.valid_from <= $7 AND x.value IS NOT NULL
        UNION ALL
        SELECT h.version, h.size, h.time_ms, h.sha256, h.valid_from FROM (
            SELECT x.version, octet_length(x.value) AS size, x.time_ms, {x.sha256} AS sha256, x.valid_from, x.valid_to
            FROM {g}.deployment_entry_history x
            WHERE x.scope = $2 AND x.namespace = $3 AND x.key = n.key AND x.valid_from <= $7
            ORDER BY x.valid_from DESC LIMIT 1
        ) h WHERE h.valid_to > $7 AND h.size IS NOT NULL
    ) e ON true
    WHERE n.key IS NOT NULL AND w.found < $6 AND w.visited < $8
)
SELECT p.serving, o.offset_next, o.deployment_from, w.key, w.version, w.size, w.time_ms, w.sha256, w.valid_from, w.visited
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN walk w ON w.visited > 0
ORDER BY w.visited
