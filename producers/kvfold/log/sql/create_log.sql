-- One row: what identifies this log. A log that is dropped and made anew has another log_id.
CREATE TABLE IF NOT EXISTS kvfold_log.log (
    only_one        boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    log_id          uuid        NOT NULL DEFAULT gen_random_uuid(),
    name            text        NOT NULL,
    partition_count integer     NOT NULL CHECK (partition_count > 0),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
)
