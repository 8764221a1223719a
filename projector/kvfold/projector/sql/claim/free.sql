-- Partitions that nobody holds, and how many workers share them all.
SELECT array(SELECT partition FROM {g}.claim WHERE owner IS NULL OR expires_at <= clock_timestamp() ORDER BY partition),
    (SELECT count(*) FROM {g}.worker WHERE expires_at > clock_timestamp())
