-- Usage of a capsule's namespace, kept in step with its entries; bytes are of keys and values.
CREATE TABLE {g}.capsule_scope (
    scope text COLLATE "C" PRIMARY KEY,
    keys bigint NOT NULL,
    bytes bigint NOT NULL,
    bytes_max bigint
) WITH (fillfactor = 70);
