-- The end of each partition. Its row is locked from giving out offsets until the commit, so offsets are dense and
-- become visible in order. The row is hot: room in the page keeps its updates out of the index.
CREATE TABLE IF NOT EXISTS kvfold_log.log_partition (
    partition    integer PRIMARY KEY,
    offset_next  bigint  NOT NULL DEFAULT 0,
    timestamp_ms bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10)
