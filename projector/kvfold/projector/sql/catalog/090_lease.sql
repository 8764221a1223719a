-- Who does which work for how long. Only saves work: the log decides, so the table may be lost at any time.
CREATE UNLOGGED TABLE IF NOT EXISTS kvfold.lease (
    name text COLLATE "C" PRIMARY KEY,
    worker text NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
