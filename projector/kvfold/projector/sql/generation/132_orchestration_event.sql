-- The history of each execution, in order.
CREATE TABLE {g}.orchestration_event (
    scope text COLLATE "C" NOT NULL,
    execution_id bigint NOT NULL,
    event_id bigint NOT NULL,
    kind text NOT NULL,
    data text NOT NULL,
    record_offset bigint NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (scope, execution_id, event_id)
);
