-- The ids of instances that there were at any time, by a walk as in capsule_keys_as_of.sql; up to $3 of them. Which of them
-- were there at the position of their own partition is asked for after (instances_at.sql).
WITH RECURSIVE walk AS (
    SELECT $1::text COLLATE "C" AS start, NULL::text COLLATE "C" AS scope, 0 AS visited
    UNION ALL
    SELECT n.scope || E'\x01', n.scope, w.visited + 1
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT least(
            (SELECT x.scope FROM {g}.orchestration_instance x
                WHERE x.scope >= w.start AND x.scope < $2 ORDER BY x.scope LIMIT 1),
            (SELECT x.scope FROM {g}.orchestration_instance_history x
                WHERE x.scope >= w.start AND x.scope < $2 ORDER BY x.scope LIMIT 1)
        ) AS scope
    ) n
    WHERE n.scope IS NOT NULL AND w.visited < $3
)
SELECT p.serving, (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o), w.scope
FROM kvfold.pointer p
LEFT JOIN walk w ON w.visited > 0
ORDER BY w.visited
