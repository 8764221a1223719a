-- Messages to other scopes that were not delivered yet. They outlive their instance.
CREATE TABLE {g}.orchestration_outbox (
    scope text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    execution_id bigint NOT NULL,
    event_id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    data text NOT NULL,
    record_offset bigint NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (scope, incarnation, execution_id, event_id, kind)
);
