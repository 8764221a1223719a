-- The highest version that an undeploy swept: later versions in the scope are above it.
-- restoring is the snapshot that all its entries come from, null as soon as anything else was done to them.
CREATE TABLE {g}.deployment_scope (
    scope text COLLATE "C" PRIMARY KEY,
    version_floor bigint NOT NULL,
    restoring text
);
