-- One row a generation. States: created, replaying, catching-up, verified, serving, retired.
CREATE TABLE IF NOT EXISTS kvfold.generation (
    id int PRIMARY KEY,
    state text NOT NULL,
    schema_version int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
