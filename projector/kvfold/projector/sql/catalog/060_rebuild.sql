-- How a generation that is folded beside the serving one was asked for. to_position: where it stops, as positions;
-- NULL = it follows the log. Its decisions are compared with those of the generation compared_with.
CREATE TABLE IF NOT EXISTS kvfold.rebuild (
    generation int PRIMARY KEY REFERENCES kvfold.generation ON DELETE CASCADE,
    compared_with int NOT NULL,
    to_position text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
