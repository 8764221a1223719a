-- Values that were overwritten or removed: true from valid_from up to, not including, valid_to. The index by valid_to is for trimming.
CREATE TABLE {g}.orchestration_kv_history (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    execution_id bigint NOT NULL,
    actor text,
    valid_from bigint NOT NULL,
    time_ms bigint NOT NULL,
    valid_to bigint NOT NULL,
    PRIMARY KEY (scope, key, valid_from)
);
CREATE INDEX orchestration_kv_history_end ON {g}.orchestration_kv_history (scope, valid_to);
