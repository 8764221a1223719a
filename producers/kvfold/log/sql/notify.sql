-- After the append's commit and in a transaction of its own: inside the append it would serialise all commits of the
-- database. The notification is only a wake-up, so this commit need not wait for the disk.
SELECT set_config('synchronous_commit', 'off', true),
       pg_notify('kvfold_log', partition || ':' || (offset_next - 1))
FROM kvfold_log.log_partition
WHERE partition = %(partition)s
