-- The outcome of every record. repeat_of is the first record's offset where this one repeats a mutation id.
-- keys is a JSON array of the keys that the record changed, where it has no subject that would say so.
CREATE TABLE {g}.decision (
    partition int NOT NULL,
    record_offset bigint NOT NULL,
    scope text COLLATE "C",
    mutation_id uuid,
    type text COLLATE "C",
    namespace text COLLATE "C",
    subject text COLLATE "C",
    actor text,
    status text COLLATE "C" NOT NULL,
    code text COLLATE "C",
    version bigint,
    removed bigint,
    detail text,
    repeat_of bigint,
    keys text,
    time_ms bigint NOT NULL,
    PRIMARY KEY (partition, record_offset)
);
CREATE INDEX decision_scope ON {g}.decision (partition, scope, record_offset);
