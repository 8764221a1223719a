-- What waits for each runtime instance; the runnable ones are what workers look for.
CREATE TABLE {g}.orchestration_queue (
    scope text COLLATE "C" PRIMARY KEY,
    runnable boolean NOT NULL,
    message_last bigint NOT NULL,
    events_waiting bigint NOT NULL,
    children bigint NOT NULL,
    parent text
) WITH (fillfactor = 70);
CREATE INDEX orchestration_queue_runnable ON {g}.orchestration_queue (message_last, scope) WHERE runnable;
