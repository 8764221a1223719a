-- Instances, and who executes them: the execution, and the last worker to commit something.
CREATE TABLE {g}.orchestration_instance (
    scope text COLLATE "C" PRIMARY KEY,
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
    updated_at bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX orchestration_instance_status ON {g}.orchestration_instance (status, scope);
