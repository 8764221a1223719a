-- Activities, timers and children that an execution awaits.
CREATE TABLE {g}.orchestration_task (
    scope text COLLATE "C" NOT NULL,
    execution_id bigint NOT NULL,
    event_id bigint NOT NULL,
    incarnation bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text NOT NULL,
    data text NOT NULL,
    attempt bigint NOT NULL,
    due_ms bigint NOT NULL,
    scheduled_ms bigint NOT NULL,
    record_offset bigint NOT NULL,
    PRIMARY KEY (scope, execution_id, event_id)
) WITH (fillfactor = 80);
CREATE INDEX orchestration_task_due ON {g}.orchestration_task (kind, due_ms, scope) WHERE kind <> 'child';
