-- Messages that no turn has consumed.
CREATE TABLE {g}.orchestration_inbox (
    scope text COLLATE "C" NOT NULL,
    record_offset bigint NOT NULL,
    kind text NOT NULL,
    data text NOT NULL,
    time_ms bigint NOT NULL,
    PRIMARY KEY (scope, record_offset)
);
