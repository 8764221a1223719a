-- The log that the projections of this database are folded from. The partition count is fixed at first use;
-- log_id tells a topic from another one that was made anew under the same name.
CREATE TABLE IF NOT EXISTS kvfold.log (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    kind text NOT NULL,
    name text NOT NULL,
    log_id text NOT NULL,
    partition_count int NOT NULL CHECK (partition_count > 0)
);
