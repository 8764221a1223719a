-- How far each partition is folded, and what its decisions carry on (effective time, format level).
-- The hottest row of the database: narrow, and with room on its page for HOT updates. epoch is the fence: a fold
-- commits only while it is the one of its claim. The columns `…_from` are the trim horizons: what records below them
-- changed was forgotten. Of a family, state can be read as of `…_from - 1` and later, and changes followed from there.
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
    orchestration_from bigint NOT NULL DEFAULT 0,
    capsule_from bigint NOT NULL DEFAULT 0,
    deployment_from bigint NOT NULL DEFAULT 0,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
