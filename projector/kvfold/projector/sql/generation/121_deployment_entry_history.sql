-- Values and tombstones that were followed by another: true from valid_from up to, not including, valid_to. The index by valid_to is for trimming.
CREATE TABLE {g}.deployment_entry_history (
    scope text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    value bytea,
    actor text,
    valid_from bigint NOT NULL,
    time_ms bigint NOT NULL,
    valid_to bigint NOT NULL,
    PRIMARY KEY (scope, namespace, key, valid_from)
);
CREATE INDEX deployment_entry_history_end ON {g}.deployment_entry_history (scope, valid_to);
