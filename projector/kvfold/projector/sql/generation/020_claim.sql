-- Who folds a partition, by which session. Times are the database's, so that the workers' clocks do not matter.
-- A claim is over when it expires, or when its session has ended: a killed worker is replaced at once.
CREATE TABLE {g}.claim (
    partition int PRIMARY KEY,
    owner text COLLATE "C",
    epoch bigint NOT NULL DEFAULT 0,
    expires_at timestamptz,
    backend_pid int
) WITH (fillfactor = 20);
