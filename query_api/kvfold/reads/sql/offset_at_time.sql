-- The last record of a partition whose effective time is $2 or before, by bisection: each step is one look-up. Effective
-- times never go back, so there is one such place. Everything up to low is of $2 or before, nothing above high is.
WITH RECURSIVE search AS (
    SELECT o.decisions_from - 1 AS low, o.offset_next - 1 AS high FROM {g}.partition_offset o WHERE o.partition = $1
    UNION ALL
    SELECT CASE WHEN d.time_ms <= $2 THEN d.record_offset ELSE s.low END,
        CASE WHEN d.time_ms <= $2 THEN s.high ELSE m.middle - 1 END
    FROM search s
    CROSS JOIN LATERAL (SELECT s.low + (s.high - s.low + 1) / 2 AS middle) m
    LEFT JOIN LATERAL (
        SELECT x.record_offset, x.time_ms FROM {g}.decision x
        WHERE x.partition = $1 AND x.record_offset >= m.middle AND x.record_offset <= s.high
        ORDER BY x.record_offset LIMIT 1
    ) d ON true
    WHERE s.low < s.high
)
SELECT p.serving, o.offset_next, o.decisions_from, s.low
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
LEFT JOIN search s ON s.low >= s.high
