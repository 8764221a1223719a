-- Usage of a capsule's namespace, kept in step with its entries; bytes are of keys and values.
-- restoring is the snapshot that all of them come from, null as soon as anything else was done to them.
CREATE TABLE {g}.capsule_scope (
    scope text COLLATE "C" PRIMARY KEY,
    keys bigint NOT NULL,
    bytes bigint NOT NULL,
    bytes_max bigint,
    restoring text
) WITH (fillfactor = 70);
