-- The current value of each capsule key. valid_from is the offset that wrote it; keys compare as bytes.
CREATE TABLE {g}.capsule_entry (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    value bytea NOT NULL,
    sha256 bytea NOT NULL,
    actor text,
    valid_from bigint NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (scope, key)
);
