-- Instances as they were: true from updated_at, the record that made them so, up to, not including, valid_to. The index by valid_to is for trimming.
CREATE TABLE {g}.orchestration_instance_history (
    scope text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    execution_id bigint NOT NULL,
    mode text NOT NULL,
    name text NOT NULL,
    status text COLLATE "C" NOT NULL,
    input text NOT NULL,
    output text,
    failure text,
    custom_status text,
    worker text,
    history_length bigint NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    updated_at bigint NOT NULL,
    valid_to bigint NOT NULL,
    PRIMARY KEY (scope, updated_at)
);
CREATE INDEX orchestration_instance_history_end ON {g}.orchestration_instance_history (scope, valid_to);
