-- The highest version that an undeploy swept: later versions in the scope are above it.
CREATE TABLE {g}.deployment_scope (
    scope text COLLATE "C" PRIMARY KEY,
    version_floor bigint NOT NULL
);
