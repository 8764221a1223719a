-- A partition that stopped, and why. Its row goes when the partition folds again.
CREATE TABLE {g}.pause (
    partition int PRIMARY KEY,
    reason text NOT NULL,
    detail text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
