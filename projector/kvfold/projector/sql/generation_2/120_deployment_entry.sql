-- The value's SHA-256, so that a listing tells what changed without fetching a value. NULL for a tombstone.
ALTER TABLE {g}.deployment_entry ADD COLUMN sha256 bytea GENERATED ALWAYS AS (sha256(value)) STORED;
