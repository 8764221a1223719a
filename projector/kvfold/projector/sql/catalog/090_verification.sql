-- The last verification of each generation: at which position it was compared with a fresh fold, how many rows, and how
-- many of them differ. unsettled: scopes that changed meanwhile and were compared in part.
CREATE TABLE IF NOT EXISTS kvfold.verification (
    generation int PRIMARY KEY REFERENCES kvfold.generation ON DELETE CASCADE,
    position text NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    row_count bigint NOT NULL,
    difference_count bigint NOT NULL,
    unsettled_scopes bigint NOT NULL
);
