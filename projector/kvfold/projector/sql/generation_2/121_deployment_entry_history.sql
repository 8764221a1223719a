-- As deployment_entry's, of what was overwritten or removed: listings of the past have it, too.
ALTER TABLE {g}.deployment_entry_history ADD COLUMN sha256 bytea GENERATED ALWAYS AS (sha256(value)) STORED;
