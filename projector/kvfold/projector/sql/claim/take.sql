-- Takes a partition that nobody holds; the epoch tells this owner from every earlier one.
UPDATE {g}.claim AS c
SET owner = %(owner)s, epoch = c.epoch + 1, expires_at = clock_timestamp() + %(claim_ms)s * interval '1 ms',
    backend_pid = pg_backend_pid()
FROM (SELECT partition, owner FROM {g}.claim WHERE partition = %(partition)s FOR UPDATE SKIP LOCKED) AS old
WHERE c.partition = old.partition
  AND (
      c.owner IS NULL OR c.expires_at <= clock_timestamp()
      OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = c.backend_pid)
  )
RETURNING c.epoch, old.owner
