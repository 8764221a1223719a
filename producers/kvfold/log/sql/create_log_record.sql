CREATE TABLE IF NOT EXISTS kvfold_log.log_record (
    partition    integer NOT NULL,
    "offset"     bigint  NOT NULL,
    timestamp_ms bigint  NOT NULL,
    key          bytea,
    headers      bytea   NOT NULL,
    value        bytea,
    PRIMARY KEY (partition, "offset")
)
