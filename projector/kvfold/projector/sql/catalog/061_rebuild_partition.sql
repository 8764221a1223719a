-- Per partition: the offset that the rebuild has to reach, and up to where its decisions are compared.
CREATE TABLE IF NOT EXISTS kvfold.rebuild_partition (
    generation int NOT NULL REFERENCES kvfold.rebuild ON DELETE CASCADE,
    partition int NOT NULL,
    target bigint NOT NULL,
    compared_next bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (generation, partition)
) WITH (fillfactor = 50);
