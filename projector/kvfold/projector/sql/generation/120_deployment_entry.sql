-- The current value of each deployment key; a null value is a tombstone that keeps the version.
CREATE TABLE {g}.deployment_entry (
    scope text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    value bytea,
    actor text,
    valid_from bigint NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (scope, namespace, key)
);
