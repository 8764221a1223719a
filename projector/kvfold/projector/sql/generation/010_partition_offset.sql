-- How far each partition is folded, and what its decisions carry on (effective time, format level).
-- The hottest row of the database: narrow, and with room on its page for HOT updates. epoch is the fence: a fold
-- commits only while it is the one of its claim. ids_from and decisions_from are the trim horizons.
CREATE TABLE {g}.partition_offset (
    partition int PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    offset_next bigint NOT NULL DEFAULT 0,
    time_ms bigint NOT NULL DEFAULT 0,
    format_level int NOT NULL DEFAULT 1,
    last_offset bigint,
    last_digest text COLLATE "C",
    last_timestamp_ms bigint,
    ids_from bigint NOT NULL DEFAULT 0,
    decisions_from bigint NOT NULL DEFAULT 0,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
