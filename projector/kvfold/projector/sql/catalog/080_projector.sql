-- Projector processes that are alive, and the highest format level that each can fold: the log is never raised above it.
CREATE TABLE IF NOT EXISTS kvfold.projector (
    owner text COLLATE "C" PRIMARY KEY,
    format_level int NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 20);
