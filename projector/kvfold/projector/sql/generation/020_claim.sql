-- Who folds a partition. Times are the database's, so that the workers' clocks do not matter.
CREATE TABLE {g}.claim (
    partition int PRIMARY KEY,
    owner text COLLATE "C",
    epoch bigint NOT NULL DEFAULT 0,
    expires_at timestamptz,
    backend_pid int
) WITH (fillfactor = 20);
