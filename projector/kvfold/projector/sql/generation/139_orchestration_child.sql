-- The children of each instance, over all its executions: they are deleted with it.
CREATE TABLE {g}.orchestration_child (
    scope text COLLATE "C" NOT NULL,
    execution_id bigint NOT NULL,
    event_id bigint NOT NULL,
    child text COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, execution_id, event_id)
);
