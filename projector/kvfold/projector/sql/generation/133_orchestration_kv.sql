-- The current value of each orchestration key, with its last-writing execution (row O12).
CREATE TABLE {g}.orchestration_kv (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    execution_id bigint NOT NULL,
    actor text,
    valid_from bigint NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX orchestration_kv_execution ON {g}.orchestration_kv (scope, execution_id);
