-- Live projector processes, for fair shares.
CREATE TABLE {g}.worker (
    owner text COLLATE "C" PRIMARY KEY,
    expires_at timestamptz NOT NULL,
    backend_pid int NOT NULL
) WITH (fillfactor = 20);
