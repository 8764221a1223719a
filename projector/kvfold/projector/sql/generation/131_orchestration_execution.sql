-- Executions of an instance, each with the KV that it started from.
CREATE TABLE {g}.orchestration_execution (
    scope text COLLATE "C" NOT NULL,
    execution_id bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    input text NOT NULL,
    output text,
    failure text,
    kv_seed text NOT NULL,
    started_ms bigint NOT NULL,
    ended_ms bigint,
    PRIMARY KEY (scope, execution_id)
);
