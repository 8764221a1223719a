-- Where a mutation id was first decided in its scope, and what it asked for. Kept for the dedupe window.
-- The id comes before the scope, so that an id is found where no scope is named, too.
CREATE TABLE {g}.mutation_id (
    partition int NOT NULL,
    id uuid NOT NULL,
    scope text COLLATE "C" NOT NULL,
    record_offset bigint NOT NULL,
    fingerprint bytea NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (partition, id, scope)
);
