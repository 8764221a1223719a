-- One statement and so one transaction in one round trip: lock the partition's row, give out offsets and a time that
-- never goes back, insert. The row stays locked until the commit is durable.
WITH place AS (
    UPDATE kvfold_log.log_partition
    SET offset_next = offset_next + %(count)s,
        timestamp_ms = greatest(timestamp_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    WHERE partition = %(partition)s
    RETURNING offset_next - %(count)s AS base, timestamp_ms
), inserted AS (
    INSERT INTO kvfold_log.log_record (partition, "offset", timestamp_ms, key, headers, value)
    SELECT %(partition)s, place.base + item.place - 1, place.timestamp_ms, item.key, item.headers, item.value
    FROM place, unnest(%(keys)b::bytea[], %(headers)b::bytea[], %(values)b::bytea[])
        WITH ORDINALITY AS item (key, headers, value, place)
)
SELECT base, timestamp_ms FROM place
