-- Partitions that nobody holds, and how many workers share them all.
WITH sessions AS (SELECT pid FROM pg_stat_activity)
SELECT
    array(
        SELECT partition FROM {g}.claim
        WHERE owner IS NULL OR expires_at <= clock_timestamp() OR backend_pid NOT IN (SELECT pid FROM sessions)
        ORDER BY partition
    ),
    (
        SELECT count(*) FROM {g}.worker
        WHERE expires_at > clock_timestamp() AND backend_pid IN (SELECT pid FROM sessions)
    )
